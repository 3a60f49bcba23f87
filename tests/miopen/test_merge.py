"""Merged databases lose nothing, and don't depend on the order of merging."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.miopen.find_db import FindItem, FindRecord, read_find_db, write_find_db
from foretune.miopen.merge import MergeReport, merge_databases
from foretune.miopen.perf_db import PerfRecord, read_perf_db, write_perf_db

FIND_KEY = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F"
PERF_KEY = "2x64x56x56x1x1x1x1x128x32x0x0x0x1x1x0x1x1x0x0x1xNCHWxFP16xF"
GEMM = "miopenConvolutionFwdAlgoGEMM"

Find = dict[str, dict[str, tuple[float, int]]]
times = st.sampled_from((-1.0, 0.0, 0.125, 0.25, 0.5, 1e-7))
find_databases = st.dictionaries(
    st.sampled_from([FIND_KEY.replace("-32-", f"-{batch}-") for batch in (1, 2, 4)]),
    st.dictionaries(
        st.sampled_from(("a", "b", "c")), st.tuples(times, st.integers(0, 2)), min_size=1
    ),
    min_size=1,
)
perf_databases = st.dictionaries(
    st.sampled_from([PERF_KEY.replace("x32x", f"x{batch}x") for batch in (1, 2, 4)]),
    st.dictionaries(
        st.sampled_from(("a", "b", "c")), st.sampled_from(("1", "2:x", "<3, 4>")), min_size=1
    ),
    min_size=1,
)


def write_find(path: Path, content: Find) -> Path:
    records = [
        FindRecord(key, tuple(FindItem(s, time, ws, GEMM) for s, (time, ws) in items.items()))
        for key, items in content.items()
    ]
    write_find_db(path, records)
    return path


def write_perf(path: Path, content: dict[str, dict[str, str]]) -> Path:
    write_perf_db(path, [PerfRecord(key, params) for key, params in content.items()])
    return path


def merged(paths: list[Path]) -> tuple[bytes, MergeReport]:
    out = paths[0].with_name(f"out{''.join(paths[0].suffixes)}")
    report = merge_databases(paths, out)
    return out.read_bytes(), report


def check_algebra(paths: list[Path]) -> bytes:
    """Same result in any order, however often a file is named, and when merged in steps."""
    a, b, c = paths
    whole, report = merged([a, b, c])
    for order in ([c, b, a], [b, a, c, b], [b, c, a]):
        again, other = merged(order)
        assert again == whole
        assert (other.conflicts, other.undecided) == (report.conflicts, report.undecided)
    half = a.with_name(f"half{''.join(a.suffixes)}")
    half.write_bytes(merged([a, b])[0])
    assert merged([half, c])[0] == whole
    half.write_bytes(whole)
    assert merged([half])[0] == merged([half, a])[0] == whole
    return whole


@settings(max_examples=25, deadline=None)
@given(st.lists(find_databases, min_size=3, max_size=3))
def test_find_dbs_merge_in_any_order_and_lose_nothing(contents: list[Find]) -> None:
    with TemporaryDirectory() as folder:
        paths = [
            write_find(Path(folder, f"{number}.ufdb.txt"), content)
            for number, content in enumerate(contents)
        ]
        check_algebra(paths)
        records = {record.key: record for record in read_find_db(Path(folder, "out.ufdb.txt"))}
    assert records.keys() == set().union(*contents)
    for key, record in records.items():
        listed = [content[key] for content in contents if key in content]
        assert {item.solver for item in record.items} == set().union(*listed)
        for item in record.items:
            rivals = [items[item.solver] for items in listed if item.solver in items]
            assert (item.time_ms, item.workspace) in rivals
            valid = [time for time, _ in rivals if time > 0]
            if valid:
                assert item.time_ms == min(valid)


@settings(max_examples=25, deadline=None)
@given(st.lists(perf_databases, min_size=3, max_size=3))
def test_perf_dbs_merge_in_any_order_and_lose_nothing(
    contents: list[dict[str, dict[str, str]]],
) -> None:
    with TemporaryDirectory() as folder:
        paths = [
            write_perf(Path(folder, f"{number}.udb.txt"), content)
            for number, content in enumerate(contents)
        ]
        check_algebra(paths)
        records = {record.key: record for record in read_perf_db(Path(folder, "out.udb.txt"))}
    assert records.keys() == set().union(*contents)
    for key, record in records.items():
        listed = [content[key] for content in contents if key in content]
        assert record.params.keys() == set().union(*listed)
        for solver, params in record.params.items():
            assert params in [items[solver] for items in listed if solver in items]


def test_the_faster_measurement_decides_between_configs(tmp_path: Path) -> None:
    paths = []
    for name, time, params in (("a", 0.5, "1"), ("b", 0.25, "2")):
        (tmp_path / name).mkdir()
        stem = f"{name}/gfx942130.HIP.3_3_0_"
        paths.append(write_perf(tmp_path / f"{stem}.udb.txt", {PERF_KEY: {"X": params}}))
        write_find(tmp_path / f"{stem}.ufdb.txt", {FIND_KEY: {"X": (time, 0)}})
    out = tmp_path / "all.udb.txt"
    report = merge_databases(paths, out)
    assert (report.conflicts, report.undecided) == (1, 0)
    assert [dict(record.params) for record in read_perf_db(out)] == [{"X": "2"}]
    (tmp_path / "b/gfx942130.HIP.3_3_0_.ufdb.txt").unlink()
    merge_databases(paths, out)
    assert [dict(record.params) for record in read_perf_db(out)] == [{"X": "1"}]
    (tmp_path / "a/gfx942130.HIP.3_3_0_.ufdb.txt").unlink()
    assert merge_databases(paths, out).undecided == 1


def test_sqlite_and_text_merge(tmp_path: Path) -> None:
    text = write_perf(tmp_path / "a.udb.txt", {PERF_KEY: {"X": "1"}})
    sqlite = write_perf(tmp_path / "b.udb", {PERF_KEY: {"Y": "2"}})
    for out in (tmp_path / "all.udb.txt", tmp_path / "all.udb"):
        merge_databases([text, sqlite], out)
        assert [dict(record.params) for record in read_perf_db(out)] == [{"X": "1", "Y": "2"}]
    assert sqlite3.connect(tmp_path / "all.udb").execute("SELECT count(*) FROM perf_db").fetchone()


def test_malformed_lines_are_reported_with_file_and_line(tmp_path: Path) -> None:
    good = write_find(tmp_path / "a.ufdb.txt", {FIND_KEY: {"a": (0.5, 0)}})
    bad = tmp_path / "b.ufdb.txt"
    bad.write_text(f"nonsense\n{FIND_KEY}=b:0.25,0,{GEMM};c:1\n\xff\n", encoding="latin-1")
    empty = tmp_path / "c.ufdb.txt"
    empty.touch()
    out = tmp_path / "out.ufdb.txt"
    report = merge_databases([good, bad, empty], out)
    assert [(issue.file, issue.line) for issue in report.issues] == [
        (str(empty), 0),
        (str(bad), 1),
        (str(bad), 2),
        (str(bad), 3),
    ]
    assert {item.solver for record in read_find_db(out) for item in record.items} == {"a", "b"}
    before = out.read_bytes()
    with pytest.raises(InputError, match=r"c\.ufdb\.txt: the file is empty"):
        merge_databases([good, bad, empty], out, strict=True)
    with pytest.raises(InputError, match=r"b\.ufdb\.txt, line 1"):
        merge_databases([good, bad], out, strict=True)
    bad.write_text("nonsense\n")
    with pytest.raises(InputError, match=r"no line of these databases.*line 1"):
        merge_databases([bad], out)
    assert out.read_bytes() == before


def test_a_key_that_stands_twice_in_a_file_is_merged(tmp_path: Path) -> None:
    path = tmp_path / "a.ufdb.txt"
    path.write_text(f"{FIND_KEY}=a:0.5,0,{GEMM}\n{FIND_KEY}=b:0.25,0,{GEMM};a:0.4,0,{GEMM}\n")
    report = merge_databases([path], path)
    assert (report.problems, report.items, report.conflicts, report.issues) == (1, 2, 1, ())
    assert path.read_text() == f"{FIND_KEY}=b:0.25,0,{GEMM};a:0.4,0,{GEMM}\n"


def test_what_can_not_be_merged_is_told(tmp_path: Path) -> None:
    find = write_find(tmp_path / "gfx942130.HIP.3_3_0_.ufdb.txt", {FIND_KEY: {"a": (0.5, 0)}})
    other = write_find(tmp_path / "gfx90a68.HIP.3_3_0_.ufdb.txt", {FIND_KEY: {"a": (0.5, 0)}})
    newer = write_find(tmp_path / "gfx942130.HIP.3_4_0_ab.ufdb.txt", {FIND_KEY: {"a": (0.5, 0)}})
    perf = write_perf(tmp_path / "gfx942130.HIP.3_3_0_.udb.txt", {PERF_KEY: {"a": "1"}})
    out = tmp_path / "out.txt"
    with pytest.raises(InputError, match="gfx90a with 104 compute units"):
        merge_databases([find, other], out)
    with pytest.raises(InputError, match="gfx90a with 104 compute units"):
        merge_databases([find], other)
    with pytest.raises(InputError, match=r"says MIOpen 3\.4, but that of .* 3\.3"):
        merge_databases([find, newer], out)
    with pytest.raises(InputError, match=r"says MIOpen 3\.3, but that of .* 3\.4"):
        merge_databases([newer], find)
    with pytest.raises(InputError, match="this is a perf-db"):
        merge_databases([find, perf], out)
    with pytest.raises(InputError, match="there is no such file"):
        merge_databases([find, tmp_path / "none.ufdb.txt"], out)
    with pytest.raises(InputError, match="name the databases"):
        merge_databases([], out)
    assert not out.exists()


def test_halves_of_amds_database_make_the_whole(
    plain_database: Callable[[str], Path], tmp_path: Path
) -> None:
    with plain_database("gfx942130.HIP.fdb.txt").open() as file:
        lines = [line for number, line in enumerate(file) if number % 20 == 0]
    halves = [tmp_path / "a.fdb.txt", tmp_path / "b.fdb.txt"]
    for half, path in enumerate(halves):
        path.write_text("".join(lines[half::2]))
    out = tmp_path / "all.fdb.txt"
    report = merge_databases(halves, out)
    assert (report.problems, report.conflicts, report.issues) == (len(lines), 0, ())
    for mine, amds in zip(sorted(lines), out.read_text().splitlines(), strict=True):
        key, _, values = mine.strip().partition("=")
        assert (key, sorted(values.split(";"))) == (
            amds.partition("=")[0],
            sorted(amds.partition("=")[2].split(";")),
        )
