"""A database is described with what looks wrong in it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from foretune.errors import InputError
from foretune.miopen.inspect import describe_database
from foretune.miopen.perf_db import PerfRecord, write_perf_db

FIND = """\
64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F=ConvDirectNaiveConvFwd:0.2,0,{f}Direct;a:0.3,{huge},{f}GEMM
64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NHWC-NHWC-NHWC-FP16-F_g2=a:0,0,{f}GEMM;b:-1,-1,{f}FFT;c:1,0,{f}Direct
1-2-2-5x5-1-1-1-1-0x0-1x1-1x1-0-NCHW-FP32-F=ConvDirectNaiveConvFwd:0.2,0,{f}Direct
64-56-56-1x1-128-57-56-32-0x0-1x1-1x1-0-NCHW-FP16-F=a:1,0,{f}GEMM
nonsense
""".format(f="miopenConvolutionFwdAlgo", huge=2**41)


def test_a_find_db_is_described(tmp_path: Path) -> None:
    path = tmp_path / "gfx90a68.HIP.fdb.txt"
    path.write_text(FIND)
    summary = describe_database(path)
    assert (summary.kind, summary.storage, summary.lines) == ("find-db", "text", 5)
    assert (summary.problems, summary.items, summary.grouped) == (3, 6, 1)
    assert summary.by_direction == {"F": 3}
    assert summary.by_type == {"FP16": 2, "FP32": 1}
    assert summary.by_layout == {"NCHW": 2, "NHWC": 1}
    assert summary.winners == {"ConvDirectNaiveConvFwd": 2, "c": 1}
    assert summary.items_per_problem == {1: 1, 2: 1, 3: 1}
    assert summary.suspicious_counts == {
        "time is not above zero": 2,
        "workspace is impossible": 2,
        "naive solver won where others ran": 1,
        "filter is larger than the padded input": 1,
    }
    assert {(entry.line, entry.reason) for entry in summary.suspicious} == {
        (1, "naive solver won where others ran"),
        (1, "a: workspace is impossible"),
        (2, "a: time is not above zero"),
        (2, "b: time is not above zero"),
        (2, "b: workspace is impossible"),
        (3, "filter is larger than the padded input"),
    }
    assert [issue.line for issue in summary.issues] == [4, 5]
    assert json.loads(json.dumps(summary.to_dict()))["winners"] == summary.winners
    with pytest.raises(InputError, match="line 4"):
        describe_database(path, strict=True)


@pytest.mark.parametrize("name", ["a.db", "a.db.txt.gz"])
def test_a_perf_db_is_described(tmp_path: Path, name: str) -> None:
    key = "2x64x28x28x1x3x3x1x3x32x1x1x0x2x2x0x1x1x0x0x1xNCHWxFP16xB"
    wrong = key.replace("NCHW", "NCXY")
    path = tmp_path / name
    write_perf_db(path, [PerfRecord(key, {"A": "1", "B": "2"}), PerfRecord(wrong, {"A": "1"})])
    summary = describe_database(path)
    assert (summary.kind, summary.problems, summary.items) == ("perf-db", 1, 2)
    assert summary.storage == ("sqlite" if name == "a.db" else "text")
    assert summary.by_solver == {"A": 1, "B": 1}
    assert len(summary.issues) == 1


def test_content_tells_where_the_name_does_not(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(FIND)
    assert describe_database(path).kind == "find-db"
    path.write_text("2x64x28x28x1x3x3x1x3x32x1x1x0x2x2x0x1x1x0x0x1xNCHWxFP16xB=A:1\n")
    assert describe_database(path).kind == "perf-db"
    write_perf_db(tmp_path / "a.db", [])
    path.write_bytes((tmp_path / "a.db").read_bytes())
    assert describe_database(path).storage == "sqlite"


def test_a_pipe_is_not_read_in_parts(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="this is a pipe"):
        describe_database(tmp_path / "pipe")


def test_a_legacy_database_is_described(plain_database: Callable[[str], Path]) -> None:
    summary = describe_database(plain_database("gfx906_60.HIP.fdb.txt"), strict=True, examples=2)
    assert (summary.lines, summary.problems) == (105_968, 105_968)
    assert summary.items == summary.legacy_items == sum(summary.by_solver.values()) == 216_482
    assert summary.by_direction == {"W": 35_654, "B": 35_648, "F": 34_666}
    assert summary.grouped == 5_974
    assert sum(summary.winners.values()) == 105_968
    assert all(count >= 1 for count in summary.suspicious_counts.values())
    assert len(summary.suspicious) <= 2 * len(summary.suspicious_counts)
