"""The journal of a tuning run, and its Parquet."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.export import COLUMNS, export
from foretune.kernels.gains import tuning_gains
from foretune.kernels.journal import Journal, Trial
from foretune.kernels.problem_text import format_problem, parse_problem
from foretune.kernels.registry import solver
from foretune.kernels.runtime.properties import DeviceProperties

DEVICE = DeviceProperties("cuda", "NVIDIA H200", "sm_90", 132, 32, 49152, 1024, driver="13.0")
TEXT = format_problem(ConvProblem("F", 1, 3, (8, 8), 4, (3, 3)))
FAST = Trial(
    *(TEXT, "ConvDirect", "TILE=4", "measured", "", 1.5, 1.4, 1.7, 9, 2, True, 64, 1e-7, 100.0),
    *(40, 0, 4096),
)
WRONG = Trial(TEXT, "ConvDirect", "TILE=8", "wrong", "differs", error=0.5, at=101.0)
NOT = Trial(TEXT, "ConvFft", "", "not applicable", "takes 2-D", at=102.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.journal"


def filled(path: Path) -> Journal:
    journal = Journal(path)
    journal.use_device(DEVICE)
    for trial in (FAST, WRONG, NOT):
        journal.record(trial)
    return journal


def test_trials_come_back(path: Path) -> None:
    filled(path).close()
    journal = Journal(path)
    journal.use_device(DEVICE)
    assert sorted(journal.trials(), key=lambda trial: trial.at) == [FAST, WRONG, NOT]
    assert len(list(journal.trials(TEXT))) == 3
    assert not list(journal.trials("conv another"))
    journal.record(replace(FAST, time_ms=1.0, at=200.0))
    assert [trial.time_ms for trial in journal.trials() if trial.config == "TILE=4"] == [1.0]
    journal.close()


#: As version 0.1.0's first state made it.
FORMAT_1 = """
CREATE TABLE device (id INTEGER PRIMARY KEY, facts TEXT NOT NULL UNIQUE);
CREATE TABLE problem (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE trial (
    device INTEGER NOT NULL REFERENCES device, problem INTEGER NOT NULL REFERENCES problem,
    solver TEXT NOT NULL, config TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL,
    time_ms REAL, low_ms REAL, high_ms REAL, samples INTEGER NOT NULL, repeats INTEGER NOT NULL,
    is_tied INTEGER NOT NULL, workspace INTEGER NOT NULL, error REAL, at REAL NOT NULL,
    PRIMARY KEY (device, problem, solver, config)
) WITHOUT ROWID;
CREATE TABLE session (
    id INTEGER PRIMARY KEY, device INTEGER NOT NULL REFERENCES device, began REAL NOT NULL,
    ended REAL, facts TEXT NOT NULL
);
INSERT INTO device VALUES (1, '{"name": "NVIDIA H200"}');
INSERT INTO trial VALUES
    (1, 1, 'ConvDirect', 'TILE=4', 'measured', '', 1.5, 1.4, 1.7, 9, 2, 1, 64, 1e-7, 100.0);
PRAGMA user_version = 1;
"""


def test_journals_of_format_1_go_on(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(FORMAT_1)
        database.execute("INSERT INTO problem VALUES (1, ?)", (TEXT,))
        database.commit()
    for _ in range(2):
        journal = Journal(path)
        known = [(facts, list(trials)) for facts, trials in journal.devices()]
        unknown = replace(FAST, registers=None, spill_bytes=None, local_bytes=None)
        assert known == [({"name": "NVIDIA H200"}, [unknown])]
        journal.close()
    journal = filled(path)
    assert FAST in list(journal.trials())
    journal.close()


def test_journals_of_later_formats_are_refused(path: Path) -> None:
    filled(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="has format 99"):
        Journal(path)


def test_devices_are_kept_apart(path: Path) -> None:
    journal = filled(path)
    journal.use_device(replace(DEVICE, driver="13.1"))
    assert not list(journal.trials())
    journal.record(replace(FAST, time_ms=9.0))
    times = {facts["driver"]: len(list(trials)) for facts, trials in journal.devices()}
    assert times == {"13.0": 3, "13.1": 1}
    assert [trial.time_ms for trial in journal.trials()] == [9.0]
    journal.close()


def test_one_process_writes(path: Path) -> None:
    journal = Journal(path)
    with pytest.raises(InputError, match="another process"):
        Journal(path)
    journal.close()
    filled(path).close()
    assert [found.name for found in path.parent.iterdir()] == [path.name]


def test_a_journal_that_nothing_was_written_to_goes_away(path: Path) -> None:
    Journal(path).close()
    assert not list(path.parent.iterdir())


def test_other_files_are_refused(path: Path) -> None:
    path.write_text("this is no database, whatever its name says" * 30)
    with pytest.raises(InputError, match="is no journal"):
        Journal(path)
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(InputError, match="can't be written"):
        Journal(path.parent / "missing" / "run.journal")


def test_sessions_are_kept(path: Path) -> None:
    journal = filled(path)
    number = journal.begin_session({"budget": 3.0})
    journal.update_session(number, {"budget": 3.0, "seconds": 2.0})
    (session,) = journal.sessions()
    assert (session["budget"], session["seconds"]) == (3.0, 2.0)
    assert session["began"] <= session["ended"]
    journal.close()


def test_the_parquet_holds_everything(path: Path, tmp_path: Path) -> None:
    journal = filled(path)
    journal.begin_session({"budget": 3.0, "seed": 4})
    target = tmp_path / "run.parquet"
    assert export(journal, target) == 3
    journal.close()
    table = pq.read_table(target)
    rows = {(row["solver"], row["config"]): row for row in table.to_pylist()}
    fast = rows["ConvDirect", "TILE=4"]
    assert (fast["time_ms"], fast["low_ms"], fast["high_ms"]) == (1.5, 1.4, 1.7)
    assert (fast["arch"], fast["driver"], fast["is_tied"]) == ("sm_90", "13.0", True)
    assert (fast["registers"], fast["spill_bytes"], fast["local_bytes"]) == (40, 0, 4096)
    assert rows["ConvFft", ""]["registers"] is None
    assert fast["flops"] == parse_problem(fast["problem"]).flops == 2 * 36 * 4 * 27
    assert rows["ConvDirect", "TILE=8"]["time_ms"] is None
    assert rows["ConvDirect", "TILE=8"]["reason"] == "differs"
    assert rows["ConvFft", ""]["status"] == "not applicable"
    assert set(COLUMNS) < set(table.column_names)


def test_the_datasheet_tells_what_tuning_gains(path: Path, tmp_path: Path) -> None:
    journal = Journal(path)
    for driver, best in (("13.0", 1.0), ("13.1", 1.9)):
        device = replace(DEVICE, driver=driver)
        journal.use_device(device)
        direct = solver("conv", "ConvDirect")
        space = direct.space(parse_problem(TEXT), device)
        default, other, third = space.sample(3)
        for config, time_ms in ((default, 2.0), (other, best), (third, 2.5)):
            journal.record(replace(FAST, config=config.key, time_ms=time_ms))
    export(journal, tmp_path / "run.parquet")
    journal.close()
    assert "| ConvDirect | 6 | 6 | 2 | 2 | 1 | 2.00 |" in (tmp_path / "run.md").read_text()


def test_gains_need_the_default_and_another() -> None:
    direct = solver("conv", "ConvDirect")
    default, other = (
        replace(FAST, config=config.key, time_ms=time_ms)
        for config, time_ms in zip(
            direct.space(parse_problem(TEXT), DEVICE).sample(2), (1.0, 2.0), strict=True
        )
    )
    assert tuning_gains([default, other], DEVICE) == {"ConvDirect": {TEXT: 1.0}}
    assert tuning_gains([default], DEVICE) == tuning_gains([other], DEVICE) == {}
    assert tuning_gains([default, replace(other, status="wrong")], DEVICE) == {}
    gone = [replace(trial, solver="ConvGone") for trial in (default, other)]
    assert tuning_gains(gone, DEVICE) == {}


def test_the_datasheet_says_what_the_parquet_holds(path: Path, tmp_path: Path) -> None:
    journal = filled(path)
    journal.begin_session({"budget": 3.0, "seed": 4})
    export(journal, tmp_path / "run.parquet")
    journal.close()
    text = (tmp_path / "run.md").read_text()
    for words in (
        "3 trials of 1 problems",
        "NVIDIA H200",
        "seed 4",
        "| wrong | 1 |",
        "| ConvDirect | 2 | 1 | 1 | 0 | 0 |  |",
        *COLUMNS,
    ):
        assert words in text
