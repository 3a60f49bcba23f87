"""Performance databases, text and SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.miopen.keys import format_perf_key, parse_perf_key
from foretune.miopen.perf_db import PerfRecord, read_perf_db, write_perf_db

from ..strategies import problems

KEY = "2x64x28x28x1x3x3x1x3x32x1x1x0x2x2x0x1x1x0x0x1xNCHWxFP16xB"
GOOD = f"{KEY}=ConvAsm1x1U:1,8,1,16"


@pytest.mark.parametrize(
    ("name", "lines", "items", "repeats"),
    [("gfx942130.db.txt", 154_936, 367_230, 13_594), ("gfx90a68.db.txt", 116_768, 494_658, 0)],
)
def test_shipped_text_is_read_whole(
    plain_database: Callable[[str], Path], name: str, lines: int, items: int, repeats: int
) -> None:
    path = plain_database(name)
    reader = read_perf_db(path)
    changed = 0
    with path.open() as file:
        for record, line in zip(reader, file, strict=True):
            changed += f"{record}\n" != line
    assert not reader.is_sqlite
    assert (reader.lines, reader.items, len(reader.issues)) == (lines, items, repeats)
    assert all("was there before" in issue.reason for issue in reader.issues)
    assert changed == len({issue.line for issue in reader.issues})


def test_shipped_sqlite_is_read_written_and_read_again(
    plain_database: Callable[[str], Path], tmp_path: Path
) -> None:
    reader = read_perf_db(plain_database("gfx906_60.db"), strict=True)
    records = list(reader)
    assert reader.is_sqlite
    assert (len(records), reader.lines, reader.items) == (86_494, 86_494, 130_082)
    assert records[0].params["ConvAsm3x3U"] == "7,8,4"
    for record in records:
        assert format_perf_key(parse_perf_key(record.key)) == record.key
    path = tmp_path / "b.db"
    assert write_perf_db(path, records) == 86_494
    assert list(read_perf_db(path, strict=True)) == records
    with sqlite3.connect(path) as ours, sqlite3.connect(plain_database("gfx906_60.db")) as theirs:
        for table in ("config", "perf_db"):
            names = [
                [row[1:3] for row in database.execute(f"PRAGMA table_info({table})")]
                for database in (ours, theirs)
            ]
            assert names[0] == names[1]
        for index in ("idx_config", "idx_perf_db"):
            columns = [
                [row[2] for row in database.execute(f"PRAGMA index_info({index})")]
                for database in (ours, theirs)
            ]
            assert columns[0] == columns[1]
    ours.close()
    theirs.close()


RECORDS = st.lists(
    st.builds(
        PerfRecord,
        problems(casts=False).map(format_perf_key),
        st.dictionaries(
            st.from_regex(r"[A-Za-z][A-Za-z0-9_<>-]{0,30}", fullmatch=True),
            st.from_regex(r"[A-Za-z0-9,<>+: \[\]=-]{0,60}", fullmatch=True),
            min_size=1,
            max_size=5,
        ),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda record: record.key,
)


@given(RECORDS, st.sampled_from([".db", ".db.txt", ".udb.gz", ".udb.txt.xz", ".db.bz2"]))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, records: list[PerfRecord], suffix: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"written{suffix}"
    assert write_perf_db(path, records) == len(records)
    reader = read_perf_db(path, strict=True)
    assert list(reader) == records
    assert reader.is_sqlite == (".txt" not in suffix)


def test_the_first_colon_ends_the_solver(tmp_path: Path) -> None:
    path = tmp_path / "a.db.txt"
    path.write_text(f"{KEY}=A:x<BlkGemmPipelineScheduler: Interwave, v=2>;B:1")
    assert [record.params for record in read_perf_db(path, strict=True)] == [
        {"A": "x<BlkGemmPipelineScheduler: Interwave, v=2>", "B": "1"}
    ]


@pytest.mark.parametrize(
    ("line", "kept", "reason"),
    [
        ("nonsense", 0, "no '='"),
        ("1x2x3=a:1", 0, "has 3 fields"),
        (GOOD.replace("x32x", "x33x") + ";b", 1, "not solver:parameters"),
        (GOOD.replace("x32x", "x33x") + ";:b", 1, "not solver:parameters"),
        (GOOD.replace("x32x", "x33x") + ";ConvAsm1x1U:2", 1, "the first is kept"),
        (GOOD, 0, "was there before"),
        (KEY.replace("x32x", "x33x") + "=", 0, "not solver:parameters"),
    ],
)
def test_what_is_broken_costs_itself(tmp_path: Path, line: str, kept: int, reason: str) -> None:
    path = tmp_path / "a.db.txt"
    path.write_text(f"{GOOD}\n{line}\n\n{GOOD.replace('x32x', 'x31x')}\n")
    reader = read_perf_db(path)
    records = list(reader)
    assert len(records) == 2 + kept
    assert all(record.params == {"ConvAsm1x1U": "1,8,1,16"} for record in records)
    assert {issue.line for issue in reader.issues} == {2}
    assert reason in reader.issues[0].reason
    with pytest.raises(InputError, match="line 2"):
        list(read_perf_db(path, strict=True))


def test_broken_sqlite_is_an_issue(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    keys = [KEY.replace("x32x", f"x{batch}x") for batch in range(1, 2000)]
    write_perf_db(whole, [PerfRecord(key, {"A": "1", "B": "2"}) for key in keys])
    data = whole.read_bytes()
    broken = tmp_path / "broken.db"
    broken.write_bytes(data[: len(data) // 2])
    reader = read_perf_db(broken)
    assert len(list(reader)) < len(keys)
    assert "SQLite stopped" in reader.issues[0].reason
    with pytest.raises(InputError, match="SQLite stopped"):
        list(read_perf_db(broken, strict=True))


def test_sqlite_of_another_schema_is_an_issue(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE config (id INTEGER)")
    database.commit()
    database.close()
    reader = read_perf_db(path)
    assert list(reader) == []
    assert "no such table: perf_db" in reader.issues[0].reason


def test_text_that_is_not_utf8_costs_its_row(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    keys = [f"2x{c}x28x28x1x1x1x1x3x32x0x0x0x1x1x0x1x1x0x0x1xNCHWxFP16xF" for c in (1, 2, 3)]
    write_perf_db(path, [PerfRecord(key, {"A": "1", "B": "2"}) for key in keys])
    database = sqlite3.connect(path)
    database.execute("UPDATE perf_db SET params = CAST(x'ff' AS TEXT) WHERE id = 1")
    database.execute("UPDATE config SET layout = CAST(x'ff' AS TEXT) WHERE id = 2")
    database.commit()
    database.close()
    reader = read_perf_db(path)
    records = list(reader)
    assert [dict(record.params) for record in records] == [{"B": "2"}, *[{"A": "1", "B": "2"}] * 2]
    assert [record.key for record in records if record.key in keys] == [keys[0], keys[2]]
    assert len(reader.issues) == 1


def test_rows_that_belong_to_nothing_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    write_perf_db(path, [PerfRecord(KEY, {"A": "1"})])
    database = sqlite3.connect(path)
    database.execute("INSERT INTO perf_db (solver, config, params) VALUES ('B', 99, '2')")
    database.execute("INSERT INTO perf_db (solver, config, params) VALUES ('C', 1, x'00')")
    database.commit()
    database.close()
    reader = read_perf_db(path)
    assert list(reader) == [PerfRecord(KEY, {"A": "1"})]
    assert len(reader.issues) == 2


def test_what_can_not_be_written_is_told(tmp_path: Path) -> None:
    record = PerfRecord(KEY, {"A": "1"})
    with pytest.raises(InputError, match=r"ends in \.txt"):
        write_perf_db(tmp_path / "a.sqlite", [record])
    path = tmp_path / "a.db"
    with pytest.raises(InputError, match="twice"):
        write_perf_db(path, [record, record])
    with pytest.raises(InputError, match="24 fields"):
        write_perf_db(path, [PerfRecord("nonsense", {"A": "1"})])
    assert not list(tmp_path.iterdir())
