"""MIOpen's performance databases: the tuning parameters that won for each problem and solver."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import cast

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.archive import (
    ARCHIVES,
    BROKEN_ARCHIVE,
    open_for_writing,
    read_all,
    replace_file,
    write_lines,
)
from foretune.miopen.keys import PERF_FIELDS, parse_perf_key, perf_key_values
from foretune.miopen.reader import DatabaseReader

_SQLITE_MAGIC = b"SQLite format 3\0"
#: The order of MIOpen's columns: text first, then numbers.
_COLUMNS = (*PERF_FIELDS[-3:], *PERF_FIELDS[:-3])
_SCHEMA = f"""
CREATE TABLE config (
    id INTEGER PRIMARY KEY ASC,
    {", ".join(f"{name} TEXT NOT NULL" for name in _COLUMNS[:3])},
    {", ".join(f"{name} INT NOT NULL" for name in _COLUMNS[3:])}
);
CREATE UNIQUE INDEX idx_config ON config ({", ".join(_COLUMNS)});
CREATE TABLE perf_db (
    id INTEGER PRIMARY KEY ASC, solver TEXT NOT NULL, config INTEGER NOT NULL, params TEXT NOT NULL
);
CREATE UNIQUE INDEX idx_perf_db ON perf_db (solver, config);
"""


@dataclass(frozen=True, slots=True)
class PerfRecord:
    """The tuned parameters of one problem.

    Parameters
    ----------
    key : str
        The problem's perf-db key; `parse_perf_key` reads it.
    params : mapping of str to str
        Solver id to its parameters, as the solver writes them.
    line : int, optional
        Line number in the file that it came from, or id of the row.

    Examples
    --------
    >>> key = "2x64x28x28x1x1x1x1x3x32x0x0x0x1x1x0x1x1x0x0x1xNCHWxFP16xF"
    >>> record = PerfRecord(key, {"ConvAsm1x1U": "1,8,1,16,1,2,2,2"})
    >>> record.problem.batch
    32
    """

    key: str
    params: Mapping[str, str] = field(hash=False)
    line: int = field(default=0, compare=False, repr=False)

    @property
    def problem(self) -> ConvProblem:
        """The problem, read from the key at each call; its x may be one of several."""
        return parse_perf_key(self.key)

    def __str__(self) -> str:
        return f"{self.key}={';'.join(f'{name}:{text}' for name, text in self.params.items())}"


class PerfDbReader(DatabaseReader[PerfRecord]):
    """The records of one perf-db file, read as they are asked for.

    Attributes
    ----------
    path : str
        The file.
    is_sqlite : bool
        Whether it is an SQLite file; else it is text.
    lines, items : int
        Lines or rows read and configs read, so far.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.db.txt")
    ...     _ = path.write_text("nonsense")
    ...     reader = read_perf_db(path)
    ...     list(reader), [issue.reason for issue in reader.issues]
    ([], ["no '='; the line is skipped"])
    """

    def __init__(
        self, path: str | os.PathLike[str], strict: bool = False, repeats: bool = False
    ) -> None:
        super().__init__(path, strict, repeats)
        try:
            start = cast(BufferedReader, self._file).peek(len(_SQLITE_MAGIC))
        except BROKEN_ARCHIVE:
            start = b""
        self.is_sqlite = start.startswith(_SQLITE_MAGIC)

    def _read(self) -> Iterator[PerfRecord]:
        yield from self._read_sqlite() if self.is_sqlite else self._read_text()

    def _read_text(self) -> Iterator[PerfRecord]:
        report = self._log.report
        for number, key, values in self._read_entries(_key_fault):
            params: dict[str, str] = {}
            for text in values.split(";"):
                # Parameters may hold a colon themselves.
                solver, colon, value = text.partition(":")
                if not colon or not solver:
                    report(number, f"item {text!r} is not solver:parameters; it is skipped")
                elif solver in params:
                    report(number, f"solver {solver!r} was there before; the first is kept")
                else:
                    params[solver] = value
            self.items += len(params)
            if params:
                yield PerfRecord(key, params, number)
            else:
                report(number, "no item is left; the line is skipped")

    def _read_sqlite(self) -> Iterator[PerfRecord]:
        with closing(self._connect()) as database:
            # Text that isn't UTF-8 stays bytes, and costs its row; else it would cost all after it.
            database.text_factory = _text
            try:
                yield from self._read_tables(database)
            except sqlite3.Error as error:
                self._log.report(
                    0, f"SQLite stopped after row {self.lines}: {error}; the rest is missing"
                )

    def _connect(self) -> sqlite3.Connection:
        with self._file:
            if isinstance(self._file, BufferedReader):
                path = Path(self.path).resolve()
                return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
            image = read_all(self._file, self._log)
        database = sqlite3.connect(":memory:")
        database.deserialize(image)
        return database

    def _read_tables(self, database: sqlite3.Connection) -> Iterator[PerfRecord]:
        params: dict[int, dict[str, str]] = {}
        rows = database.execute("SELECT config, solver, params FROM perf_db ORDER BY id")
        for config, solver, text in rows:
            if not isinstance(solver, str) or not isinstance(text, str):
                self._log.report(0, f"config {config}: solver or params is no text; it is skipped")
            elif solver in params.setdefault(config, {}):
                self._log.report(
                    0, f"config {config}: solver {solver!r} was there before; the first is kept"
                )
            else:
                params[config][solver] = text
        seen = set()
        rows = database.execute(f"SELECT id, {', '.join(PERF_FIELDS)} FROM config ORDER BY id")
        for number, *values in rows:
            self.lines += 1
            key = "x".join(map(str, values))
            record = PerfRecord(key, params.pop(number, {}), number)
            if key in seen:
                self._log.report(0, f"config {number} was there before; the first is kept")
                continue
            seen.add(key)
            self.items += len(record.params)
            yield record
        if params:
            count = sum(map(len, params.values()))
            self._log.report(0, f"{count} rows of perf_db belong to no config; they are skipped")


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _key_fault(key: str) -> str:
    fields = key.count("x") + 1
    return "" if fields == len(PERF_FIELDS) else f"has {fields} fields, not {len(PERF_FIELDS)}"


def read_perf_db(path: str | os.PathLike[str], strict: bool = False) -> PerfDbReader:
    """Read a perf-db, text or SQLite (told apart by content), plain or compressed.

    A line or item that is malformed costs itself and becomes an issue. Keys are not taken apart.

    Parameters
    ----------
    path : path-like
        For example ``gfx90a68.db.txt`` or ``gfx906_60.db`` of an installed ROCm.
    strict : bool, default False
        Raise at the first issue.

    Returns
    -------
    PerfDbReader
        Iterate over it once for the records; ``issues`` and the counts grow on the way.

    Raises
    ------
    InputError
        If the file is missing, a directory or empty; if strict, while iterating, at an issue.

    Examples
    --------
    >>> line = "2x64x28x28x1x1x1x1x3x32x0x0x0x1x1x0x1x1x0x0x1xNCHWxFP16xF=ConvAsm1x1U:1,8"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.db.txt")
    ...     _ = path.write_text(line)
    ...     [dict(record.params) for record in read_perf_db(path)]
    [{'ConvAsm1x1U': '1,8'}]
    """
    return PerfDbReader(path, strict)


def write_perf_db(path: str | os.PathLike[str], records: Iterable[PerfRecord]) -> int:
    """Write records in one step: text to ``*.txt``, SQLite to ``*.db`` and ``*.udb``.

    A suffix .bz2, .xz or .gz after that compresses.

    Parameters
    ----------
    path : path-like
        Where to; an existing file is replaced when everything is written.
    records : iterable of PerfRecord
        Written in this order.

    Returns
    -------
    int
        Records written.

    Examples
    --------
    >>> key = "2x64x28x28x1x1x1x1x3x32x0x0x0x1x1x0x1x1x0x0x1xNCHWxFP16xF"
    >>> record = PerfRecord(key, {"ConvAsm1x1U": "1,8,1,16,1,2,2,2"})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.db.bz2")
    ...     count = write_perf_db(path, [record])
    ...     count, list(read_perf_db(path)) == [record]
    (1, True)
    """
    path = Path(path)
    kind = path.with_suffix("").suffix if path.suffix in ARCHIVES else path.suffix
    if kind == ".txt":
        return write_lines(path, map(str, records))
    if kind not in (".db", ".udb"):
        raise InputError("the name of a perf-db ends in .txt, .db or .udb", str(path))
    with replace_file(path) as temporary:
        if path.suffix not in ARCHIVES:
            return _write_sqlite(temporary, records)
        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder, "perf.db")
            count = _write_sqlite(plain, records)
            with plain.open("rb") as source, open_for_writing(temporary, path.suffix) as target:
                shutil.copyfileobj(source, target)
        return count


def _write_sqlite(path: Path, records: Iterable[PerfRecord]) -> int:
    marks = ", ".join("?" * (len(_COLUMNS) + 1))
    number = 0
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        # A half-written file is thrown away, so it needs no journal.
        database.execute("PRAGMA journal_mode = OFF")
        database.executescript(_SCHEMA)
        database.execute("BEGIN")
        for number, record in enumerate(records, 1):
            values = perf_key_values(record.key)
            try:
                database.execute(
                    f"INSERT INTO config (id, {', '.join(_COLUMNS)}) VALUES ({marks})",
                    (number, *values[-3:], *values[:-3]),
                )
            except sqlite3.IntegrityError:
                raise InputError("the key is there twice", record.key) from None
            database.executemany(
                "INSERT INTO perf_db (solver, config, params) VALUES (?, ?, ?)",
                [(solver, number, text) for solver, text in record.params.items()],
            )
        database.execute("COMMIT")
    return number
