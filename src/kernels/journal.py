"""The record of a tuning run: every trial is on disk before the next one begins."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

from foretune.errors import InputError
from foretune.files import file_system_kind
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.store import NETWORK_FILE_SYSTEMS

#: Status of a solver, with its reason and no config.
NOT_APPLICABLE = "not applicable"
_FORMAT = 2
_SCHEMA = """
CREATE TABLE IF NOT EXISTS device (id INTEGER PRIMARY KEY, facts TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS problem (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS trial (
    device INTEGER NOT NULL REFERENCES device, problem INTEGER NOT NULL REFERENCES problem,
    solver TEXT NOT NULL, config TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL,
    time_ms REAL, low_ms REAL, high_ms REAL, samples INTEGER NOT NULL, repeats INTEGER NOT NULL,
    is_tied INTEGER NOT NULL, workspace INTEGER NOT NULL, error REAL, at REAL NOT NULL,
    registers INTEGER, spill_bytes INTEGER, local_bytes INTEGER,
    PRIMARY KEY (device, problem, solver, config)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS session (
    id INTEGER PRIMARY KEY, device INTEGER NOT NULL REFERENCES device, began REAL NOT NULL,
    ended REAL, facts TEXT NOT NULL
);
"""
#: What makes a journal of format 1 one of this format.
_FROM_1 = """
ALTER TABLE trial ADD COLUMN registers INTEGER;
ALTER TABLE trial ADD COLUMN spill_bytes INTEGER;
ALTER TABLE trial ADD COLUMN local_bytes INTEGER;
"""


@dataclass(frozen=True)
class Trial:
    """What became of a candidate for a problem.

    Parameters
    ----------
    problem : str
        Canonical text.
    solver, config : str
    status : str
        "measured", "too slow", "wrong", "crashed", "hung", "out of memory", "compile error",
        "failed", or "not applicable" (of a solver, without a config).
    reason : str
        Why it isn't "measured", or why it was measured less than others.
    time_ms, low_ms, high_ms : float or None
        Median and quartiles. Of what was too slow, only the time that it takes at least.
    samples : int
        Behind the median.
    repeats : int
        Runs of a sample.
    is_tied : bool
        Whether it couldn't be told from the fastest of its race.
    workspace : int
        Bytes.
    error : float or None
        Largest difference from the naive solver over the size of the sums.
    at : float
        Seconds since 1970.
    registers, spill_bytes, local_bytes : int or None
        The most that a kernel of it takes, as in `foretune.kernels.runtime.device.KernelFacts`.
    """

    problem: str
    solver: str
    config: str
    status: str
    reason: str = ""
    time_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    samples: int = 0
    repeats: int = 1
    is_tied: bool = False
    workspace: int = 0
    error: float | None = None
    at: float = 0.0
    registers: int | None = None
    spill_bytes: int | None = None
    local_bytes: int | None = None


_COLUMNS = [field.name for field in fields(Trial)][1:]


class Journal:
    """Trials in a SQLite file, which one process at a time may write, and one thread in it.

    A process that is killed loses what it hadn't recorded yet, and nothing else.

    Parameters
    ----------
    path : path-like
        Made if there is none.

    Raises
    ------
    InputError
        If it can't be written, is no journal, or another process has it.

    Examples
    --------
    >>> import tempfile
    >>> device = DeviceProperties("cuda", "NVIDIA H200", "sm_90", 132, 32, 49152, 1024)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = Journal(Path(folder, "a.journal"))
    ...     journal.use_device(device)
    ...     journal.record(Trial("conv ...", "ConvNaive", "THREADS=64", "measured", time_ms=1.5))
    ...     [trial.time_ms for trial in journal.trials("conv ...")]
    [1.5]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock_path = Path(f"{path}.lock")
        try:
            self._lock = self._take_lock()
        except OSError as error:
            raise InputError(f"can't be written: {error.strerror}", str(path)) from None
        try:
            self._database = sqlite3.connect(
                self.path, isolation_level=None, check_same_thread=False
            )
            self._prepare()
        except InputError:
            self._release_lock()
            raise
        except sqlite3.DatabaseError as error:
            self._release_lock()
            raise InputError(f"is no journal of a tuning run: {error}", str(path)) from None
        self._device = 0
        self._devices: dict[DeviceProperties, int] = {}
        self._problems: dict[str, int] = {}

    def _take_lock(self) -> int:
        handle = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise InputError(
                "another process is writing it; wait for it, or choose another --out",
                str(self.path),
            ) from None
        except OSError:  # a network file system without such locks
            return handle
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), self._lock_path.stat()):
                return handle
        # Whoever had it has removed it between the two calls.
        os.close(handle)
        return self._take_lock()

    def _release_lock(self) -> None:
        self._lock_path.unlink(missing_ok=True)
        os.close(self._lock)

    def _prepare(self) -> None:
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        if version > _FORMAT:
            raise InputError(
                f"has format {version}, this version of foretune writes {_FORMAT}; "
                "choose another --out",
                str(self.path),
            )
        if file_system_kind(self.path) not in NETWORK_FILE_SYSTEMS:
            self._database.execute("PRAGMA journal_mode=WAL")
            # Survives the death of the process; only a crash of the machine may lose the last few.
            self._database.execute("PRAGMA synchronous=NORMAL")
        # All or nothing, whenever the process is killed.
        self._database.executescript(
            f"BEGIN;{_FROM_1 if version == 1 else _SCHEMA}PRAGMA user_version={_FORMAT};COMMIT;"
        )

    def use_device(self, device: DeviceProperties) -> None:
        """Say what device, driver, compiler and version of foretune trials are of from now on."""
        if device not in self._devices:
            self._devices[device] = self._device_id(device)
        self._device = self._devices[device]

    @property
    def used(self) -> tuple[DeviceProperties, ...]:
        """Devices that were in use since the journal was opened."""
        return tuple(self._devices)

    def record(self, trial: Trial) -> None:
        """Write a trial, in the place of an older one of the same candidate."""
        values = astuple(trial if trial.at else replace(trial, at=time.time()))
        marks = ", ".join("?" * (len(_COLUMNS) + 2))
        self._database.execute(
            f"INSERT OR REPLACE INTO trial (device, problem, {', '.join(_COLUMNS)}) "
            f"VALUES ({marks})",
            (self._device, self._problem_id(trial.problem), *values[1:]),
        )

    def trials(self, problem: str = "") -> Iterator[Trial]:
        """Trials of the device in use, of one problem or all."""
        query = (
            f"SELECT problem.text, {', '.join(f'trial.{name}' for name in _COLUMNS)} FROM trial "
            "JOIN problem ON problem.id = trial.problem WHERE trial.device = ?"
        )
        parameters: list[Any] = [self._device]
        if problem:
            query += " AND problem.text = ?"
            parameters.append(problem)
        for row in self._database.execute(query, parameters):
            trial = Trial(*row)
            yield Trial(**{**asdict(trial), "is_tied": bool(trial.is_tied)})

    def devices(self) -> Iterator[tuple[dict[str, Any], Iterator[Trial]]]:
        """Facts of every device with its trials."""
        in_use = self._device
        for number, facts in self._database.execute("SELECT id, facts FROM device").fetchall():
            self._device = number
            yield json.loads(facts), self.trials()
        self._device = in_use

    def begin_session(self, facts: Mapping[str, Any]) -> int:
        """Note that tuning begins; gives the session's number."""
        cursor = self._database.execute(
            "INSERT INTO session (device, began, facts) VALUES (?, ?, ?)",
            (self._device, time.time(), json.dumps(dict(facts))),
        )
        return int(cursor.lastrowid or 0)

    def update_session(self, session: int, facts: Mapping[str, Any]) -> None:
        """Note how far a session has come."""
        self._database.execute(
            "UPDATE session SET ended = ?, facts = ? WHERE id = ?",
            (time.time(), json.dumps(dict(facts)), session),
        )

    def sessions(self) -> list[dict[str, Any]]:
        """Facts of all sessions, with when they began and when they were last heard of."""
        rows = self._database.execute("SELECT began, ended, facts FROM session ORDER BY id")
        return [
            {"began": began, "ended": ended, **json.loads(facts)} for began, ended, facts in rows
        ]

    def close(self) -> None:
        """Close the file and let others write; it goes away if nothing was written to it."""
        is_used = self._database.execute("SELECT count(*) FROM device").fetchone()[0]
        self._database.close()
        if not is_used:
            self.path.unlink(missing_ok=True)
        self._release_lock()

    def _device_id(self, device: DeviceProperties) -> int:
        from foretune import __version__

        facts = json.dumps({"foretune": __version__, **asdict(device)}, sort_keys=True)
        self._database.execute("INSERT OR IGNORE INTO device (facts) VALUES (?)", (facts,))
        row = self._database.execute("SELECT id FROM device WHERE facts = ?", (facts,)).fetchone()
        return int(row[0])

    def _problem_id(self, text: str) -> int:
        number = self._problems.get(text)
        if number is None:
            self._database.execute("INSERT OR IGNORE INTO problem (text) VALUES (?)", (text,))
            query = "SELECT id FROM problem WHERE text = ?"
            number = int(self._database.execute(query, (text,)).fetchone()[0])
            self._problems[text] = number
        return number
