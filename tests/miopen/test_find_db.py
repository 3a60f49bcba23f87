"""Find databases: whole shipped files, and every way in which a line can be broken."""

from __future__ import annotations

import bz2
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.miopen.find_db import (
    ALGORITHM_DIRECTIONS,
    FindItem,
    FindRecord,
    read_find_db,
    write_find_db,
)
from foretune.miopen.keys import format_find_key, parse_find_key

KEY = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F"
GOOD = f"{KEY}=GemmFwd1x1_0_1:0.25,0,miopenConvolutionFwdAlgoGEMM"


@pytest.mark.parametrize(
    ("name", "lines", "directions", "items", "grouped"),
    [
        ("gfx942130", 151_834, {"F": 49719, "B": 50585, "W": 51530}, 559_936, 9_961),
        ("gfx90a68", 169_692, {"F": 55667, "B": 56670, "W": 57355}, 569_299, 9_259),
        ("gfx90a6e", 168_581, {"F": 54846, "B": 56776, "W": 56959}, 568_595, 9_565),
        ("gfx90878", 160_947, {"F": 52334, "B": 54300, "W": 54313}, 534_670, 9_164),
    ],
)
def test_every_shipped_line_comes_back(
    plain_database: Callable[[str], Path],
    name: str,
    lines: int,
    directions: dict[str, int],
    items: int,
    grouped: int,
) -> None:
    path = plain_database(f"{name}.HIP.fdb.txt")
    found: Counter[str] = Counter()
    found_grouped = 0
    reader = read_find_db(path, strict=True)
    with path.open() as file:
        for record, line in zip(reader, file, strict=True):
            assert f"{record}\n" == line
            problem = parse_find_key(record.key)
            assert format_find_key(problem) == record.key
            found[problem.direction] += 1
            found_grouped += problem.groups > 1
    assert found == directions
    assert reader.lines == sum(found.values()) == lines
    assert (reader.items, reader.legacy_items, found_grouped) == (items, 0, grouped)


def test_legacy_items_are_read_as_current_ones(miopen_db: Path) -> None:
    reader = read_find_db(miopen_db / "gfx906_60.HIP.fdb.txt.bz2", strict=True)
    first = next(iter(reader))
    assert first.items == (
        FindItem("ConvMlirIgemmBwd", 0.01024, 0, "miopenConvolutionBwdDataAlgoImplicitGEMM"),
    )
    assert 1 + sum(1 for _ in reader) == reader.lines == 105_968
    assert reader.items == reader.legacy_items == 216_482


def read_text(tmp_path: Path, text: str) -> tuple[list[FindRecord], list[tuple[int, str]]]:
    path = tmp_path / "a.fdb.txt"
    path.write_text(text)
    reader = read_find_db(path)
    records = list(reader)
    return records, [(issue.line, issue.reason) for issue in reader.issues]


@pytest.mark.parametrize(
    ("line", "kept", "reason"),
    [
        ("nonsense", 0, "no '='"),
        ("=a:1,2,miopenConvolutionFwdAlgoGEMM", 0, "names no direction"),
        ("2x1x2xF=a:1", 0, "names no direction"),
        (GOOD.replace("128", "129") + ";b", 1, "no ':'"),
        (GOOD.replace("128", "129") + ";b:1,2", 1, "fewer than 3"),
        (GOOD.replace("128", "129") + ";b:1,2,none", 1, "no algorithm of direction F"),
        (GOOD.replace("128", "129") + ";b:1,2,miopenConvolutionBwdDataAlgoGEMM", 1, "direction F"),
        (GOOD.replace("128", "129") + ";b:x,2,miopenConvolutionFwdAlgoGEMM", 1, "no numbers"),
        (GOOD.replace("128", "129") + ";b:1,x,miopenConvolutionFwdAlgoGEMM", 1, "no numbers"),
        (GOOD.replace("128", "129") + ";b:nan,0,miopenConvolutionFwdAlgoGEMM", 1, "no numbers"),
        (GOOD.replace("128", "129") + ";:1,0,miopenConvolutionFwdAlgoGEMM", 1, "no solver"),
        (
            GOOD.replace("128", "129") + ";GemmFwd1x1_0_1:1,0,miopenConvolutionFwdAlgoGEMM",
            1,
            "the first is kept",
        ),
        (GOOD, 0, "was there before"),
        (f"{KEY}2=", 0, "no ':'"),
    ],
)
def test_what_is_broken_costs_itself(tmp_path: Path, line: str, kept: int, reason: str) -> None:
    records, issues = read_text(tmp_path, f"{GOOD}\n{line}\n\n{GOOD.replace('64-', '65-', 1)}\n")
    assert len(records) == 2 + kept
    assert all(len(record.items) == 1 for record in records)
    assert all(record.items[0].time_ms == 0.25 for record in records)
    assert {number for number, _ in issues} == {2}
    assert reason in issues[0][1]
    with pytest.raises(InputError, match=r"line 2: "):
        list(read_find_db(tmp_path / "a.fdb.txt", strict=True))


def test_zero_and_negative_times_are_kept(tmp_path: Path) -> None:
    records, issues = read_text(
        tmp_path, f"{KEY}=a:-0.5,0,miopenConvolutionFwdAlgoGEMM;b:0,-1,miopenConvolutionFwdAlgoFFT"
    )
    assert [(item.time_ms, item.workspace) for item in records[0].items] == [(-0.5, 0), (0, -1)]
    assert not issues


def test_a_changed_time_is_written_and_not_the_old_text() -> None:
    item = FindItem("a", 2.0, 0, "miopenConvolutionFwdAlgoGEMM", "2.0")
    assert str(item) == "a:2.0,0,miopenConvolutionFwdAlgoGEMM"
    assert str(replace(item, time_ms=3.0)) == "a:3,0,miopenConvolutionFwdAlgoGEMM"


ALGORITHMS = sorted(name for name, way in ALGORITHM_DIRECTIONS.items() if way == "F")
ITEMS = st.lists(
    st.builds(
        FindItem,
        st.from_regex(r"[A-Za-z][A-Za-z0-9_<>-]{0,30}", fullmatch=True),
        st.floats(-1e9, 1e9).map(lambda number: float(f"{number:g}")),
        st.integers(0, 2**50),
        st.sampled_from(ALGORITHMS),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda item: item.solver,
).map(tuple)


@given(ITEMS, st.sampled_from(["", ".bz2", ".xz", ".gz"]))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, items: tuple[FindItem, ...], suffix: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"written.fdb.txt{suffix}"
    records = [FindRecord(KEY, items), FindRecord(KEY.replace("-32-", "-1-"), items)]
    assert write_find_db(path, records) == 2
    assert list(read_find_db(path, strict=True)) == records


@given(
    st.text(alphabet="=:;,.-\n 01aF\xff", max_size=40),
    st.integers(0, len(GOOD)),
    st.integers(0, 10),
)
def test_noise_in_a_line_is_only_ever_issues(
    tmp_path_factory: pytest.TempPathFactory, noise: str, start: int, length: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "noise.fdb.txt"
    text = GOOD[:start] + noise + GOOD[start + length :]
    path.write_bytes(f"{text}\n{GOOD.replace('64-', '65-', 1)}".encode("latin-1"))
    reader = read_find_db(path)
    records = list(reader)
    assert records[-1].key.startswith("65-")
    for record in records:
        assert record.items
        assert all(item.solver and item.algorithm in ALGORITHMS for item in record.items)


def test_a_truncated_database_keeps_what_was_read(miopen_db: Path, tmp_path: Path) -> None:
    with (miopen_db / "gfx90878.HIP.fdb.txt.bz2").open("rb") as file:
        start = file.read(200_000)
    path = tmp_path / "a.fdb.txt.bz2"
    path.write_bytes(start)
    reader = read_find_db(path)
    records = list(reader)
    whole = bz2.BZ2Decompressor().decompress(start)
    assert len(records) == whole.count(b"\n") > 1000
    assert [issue.line for issue in reader.issues] == [0]
    with pytest.raises(InputError, match="breaks off"):
        list(read_find_db(path, strict=True))


def test_what_is_no_database_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="directory"):
        read_find_db(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_find_db(tmp_path / "a")
    (tmp_path / "empty").touch()
    with pytest.raises(InputError, match="empty"):
        read_find_db(tmp_path / "empty")
