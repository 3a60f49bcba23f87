"""The user's database of what find found, shared by all processes of a user.

On a local file system it is one SQLite file with a write-ahead log. SQLite's locks don't hold on
network file systems (its documentation warns of corrupted files), so there it is a folder in which
every process appends lines to a file of its own, and whoever reads merges all of them: no lock is
needed, and nothing is lost.

Answers are kept apart by the version of this library, device, driver and compiler: what was found
under others is never served.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from foretune.errors import InputError
from foretune.files import MOUNTS, file_system_kind
from foretune.kernels.found import Found, FoundSolution
from foretune.kernels.problem import Problem
from foretune.kernels.problem_text import format_problem, parse_problem
from foretune.kernels.records import BannedCandidate, MeasuredCandidate, MeasuredFor
from foretune.kernels.runtime.properties import DeviceProperties

#: File systems whose locks or shared memory can't be trusted between machines.
NETWORK_FILE_SYSTEMS = frozenset(
    "9p afs beegfs ceph cifs coda fuse.ceph fuse.glusterfs fuse.sshfs gfs gfs2 glusterfs gpfs "
    "lustre ncpfs nfs nfs4 ocfs2 orangefs panfs smb3 smbfs virtiofs wekafs".split()
)
_FORMAT = 1
_BUSY_SECONDS = 60.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS context (id TEXT PRIMARY KEY, facts TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS found (
    context TEXT NOT NULL, problem TEXT NOT NULL, answer TEXT NOT NULL, time REAL NOT NULL,
    PRIMARY KEY (context, problem)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS record (
    context TEXT NOT NULL, kind TEXT NOT NULL, problem TEXT NOT NULL, candidate TEXT NOT NULL,
    content TEXT NOT NULL, time REAL NOT NULL, PRIMARY KEY (context, kind, problem, candidate)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS record_time ON record (context, kind, time);
"""
_MEASURED, _ASKED, _BANNED = "measured", "asked", "banned"
T = TypeVar("T")


class Store:
    """Answers by problem, for devices.

    Parameters
    ----------
    path : path-like, optional
        Default: ``found.db`` in $FORETUNE_CACHE, else in the user's data folder. ":memory:" keeps
        nothing.
    mounts : Path, optional
        The kernel's list of mounts.

    Attributes
    ----------
    note : str
        What a person should know of it, such as that it is on a network file system; "" if
        nothing.
    is_in_trouble : bool
        Whether the note tells of something that went wrong.

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> device = DeviceProperties("cuda", "NVIDIA H200", "sm_90", 132, 32, 49152, 1024)
    >>> store, problem = Store(":memory:"), ConvProblem("F", 1, 3, (8, 8), 4, (3, 3))
    >>> store.put(Found(problem, device.name, ()), device)
    >>> store.get(problem, device).is_stored, store.get(problem, device, workspace_limit=0)
    (True, None)
    """

    def __init__(self, path: str | os.PathLike[str] = "", mounts: Path = MOUNTS) -> None:
        self.path = str(path or _default_path())
        self.note = ""
        self.is_in_trouble = False
        self._files: _Answers | None = None
        self._mounts = mounts

    def get(
        self,
        problem: Problem,
        device: DeviceProperties,
        workspace_limit: int | None = None,
        deterministic: bool = False,
    ) -> Found | None:
        """Look up a problem; None if it wasn't found under such conditions.

        What was found without limits answers for limits too, unless nothing is left of it.

        Parameters
        ----------
        problem : Problem
        device : DeviceProperties
        workspace_limit : int, optional
            Bytes that a solution may need.
        deterministic : bool, default False
            Only solutions that don't add atomically.
        """
        context, key = context_id(device), format_problem(problem)
        text = self._read(lambda answers: answers.get(context, key), None)
        if text is None:
            return None
        try:
            found, limit, is_deterministic = _read_answer(text)
        except (ValueError, KeyError, TypeError, AttributeError):  # written by something else
            return None
        if is_deterministic and not deterministic:
            return None
        if limit is not None and (workspace_limit is None or workspace_limit > limit):
            return None
        if workspace_limit is None and not deterministic:
            return found
        kept = tuple(
            solution
            for solution in found.solutions
            if (workspace_limit is None or solution.workspace <= workspace_limit)
            and not (deterministic and solution.adds_atomically)
        )
        return replace(found, solutions=kept) if kept else None

    def put(
        self,
        found: Found,
        device: DeviceProperties,
        workspace_limit: int | None = None,
        deterministic: bool = False,
    ) -> None:
        """Keep an answer, in the place of an older one."""
        answer = {
            "workspace_limit": workspace_limit,
            "deterministic": deterministic,
            "found": found.to_dict(),
        }
        text = json.dumps(answer, separators=(",", ":"))
        self._write(
            lambda answers: answers.put(
                context_id(device), context_facts(device), format_problem(found.problem), text
            )
        )

    def put_measured(
        self,
        problem: Problem,
        measured: Iterable[MeasuredCandidate],
        device: DeviceProperties,
        asked: MeasuredFor | None = None,
    ) -> None:
        """Keep what single candidates took, in the place of what they took before.

        That is no answer of find, and isn't given for one.

        Parameters
        ----------
        problem : Problem
        measured : iterable of MeasuredCandidate
        device : DeviceProperties
        asked : MeasuredFor, optional
            What they are an answer to, all together.

        Examples
        --------
        >>> from foretune.kernels.conv.problem import ConvProblem
        >>> device = DeviceProperties("cuda", "NVIDIA H200", "sm_90", 132, 32, 49152, 1024)
        >>> store, problem = Store(":memory:"), ConvProblem("F", 1, 3, (8, 8), 4, (3, 3))
        >>> naive = MeasuredCandidate("ConvNaive", "THREADS=64", 1.5, 1.4, 1.6, 7, 0)
        >>> store.put_measured(problem, [naive], device)
        >>> store.measured(problem, device) == (naive,), store.get(problem, device)
        (True, None)
        """
        text = format_problem(problem)
        rows = [_Record(_MEASURED, text, one.key, one.to_json()) for one in measured]
        if asked is not None:
            rows.append(_Record(_ASKED, text, "", asked.to_json()))
        self._put_records(rows, device)

    def measured(self, problem: Problem, device: DeviceProperties) -> tuple[MeasuredCandidate, ...]:
        """Give what was measured of a problem by `put_measured`, the fastest first."""
        rows = self._records(device, _MEASURED, format_problem(problem))
        read = _readable(MeasuredCandidate.from_json, (row.content for row in rows))
        return tuple(sorted(read, key=lambda one: one.time_ms))

    def measured_for(self, problem: Problem, device: DeviceProperties) -> MeasuredFor | None:
        """Give what `measured` is an answer to; None if it is none."""
        rows = self._records(device, _ASKED, format_problem(problem))
        return next(_readable(MeasuredFor.from_json, (row.content for row in rows)), None)

    def latest(self, device: DeviceProperties, count: int) -> tuple[MeasuredCandidate, ...]:
        """Give what was measured last on a device by `put_measured`, the newest first."""
        context, none = context_id(device), list[_Record]()
        rows = self._read(lambda answers: answers.latest(context, _MEASURED, count), none)
        return tuple(_readable(MeasuredCandidate.from_json, (row.content for row in rows)))

    def ban(self, banned: BannedCandidate, device: DeviceProperties) -> None:
        """Remember that a candidate must not be used on a device.

        Examples
        --------
        >>> device = DeviceProperties("cuda", "NVIDIA H200", "sm_90", 132, 32, 49152, 1024)
        >>> store = Store(":memory:")
        >>> store.ban(BannedCandidate("ConvNaive", "conv ...", "crashed"), device)
        >>> store.banned(device)["ConvNaive"].reason
        'crashed'
        """
        row = _Record(_BANNED, banned.problem, banned.key, banned.to_json())
        self._put_records([row], device)

    def banned(self, device: DeviceProperties) -> dict[str, BannedCandidate]:
        """Give the candidates that must not be used on a device, by their text form."""
        rows = self._records(device, _BANNED)
        read = _readable(BannedCandidate.from_json, (row.content for row in rows))
        return {one.key: one for one in read}

    def forget(self, problem: Problem, device: DeviceProperties) -> None:
        """Drop everything that is known of a problem on a device, bans that it gave included."""
        text = format_problem(problem)
        self._write(lambda answers: answers.forget(context_id(device), text))

    def contents(self) -> Iterator[tuple[dict[str, Any], Found]]:
        """Give everything measured on any device, as answers with the facts of their devices.

        What `put_measured` kept comes as answers too, beside those of find.

        Examples
        --------
        >>> from foretune.kernels.conv.problem import ConvProblem
        >>> device = DeviceProperties("cuda", "NVIDIA H200", "sm_90", 132, 32, 49152, 1024)
        >>> store, problem = Store(":memory:"), ConvProblem("F", 1, 3, (8, 8), 4, (3, 3))
        >>> store.put_measured(
        ...     problem, [MeasuredCandidate("ConvNaive", "THREADS=64", 1.5, 1.4, 1.6, 7, 0)], device
        ... )
        >>> [(facts["arch"], found.solutions[0].time_ms) for facts, found in store.contents()]
        [('sm_90', 1.5)]
        """
        nothing: _Contents = ([], [])
        answers, records = self._read(lambda known: known.contents(_MEASURED), nothing)
        for facts, text in answers:
            for found, _, _ in _readable(_read_answer, [text]):
                yield json.loads(facts), found
        groups: dict[tuple[str, str], list[MeasuredCandidate]] = {}
        for facts, text, content in records:
            group = groups.setdefault((facts, text), [])
            group += _readable(MeasuredCandidate.from_json, [content])
        for (facts, text), group in groups.items():
            device = json.loads(facts)
            for problem in _readable(parse_problem, [text]):
                solutions = tuple(
                    FoundSolution(
                        *(one.solver, one.config, one.time_ms, one.low_ms, one.high_ms),
                        *(one.samples, one.workspace, False, one.adds_atomically),
                    )
                    for one in sorted(group, key=lambda one: one.time_ms)
                )
                yield device, Found(problem, device["name"], solutions, is_stored=True)

    def _put_records(self, rows: Sequence[_Record], device: DeviceProperties) -> None:
        if rows:
            context, facts = context_id(device), context_facts(device)
            self._write(lambda answers: answers.put_records(context, facts, rows))

    def _records(
        self, device: DeviceProperties, kind: str, problem: str | None = None
    ) -> list[_Record]:
        context, none = context_id(device), list[_Record]()
        return self._read(lambda answers: answers.records(context, kind, problem), none)

    def _read(self, ask: Callable[[_Answers], T], otherwise: T) -> T:
        try:
            return ask(self._answers)
        except sqlite3.DatabaseError as error:
            if _is_broken(error):
                self.close()
                self._files = self._set_aside(error)
            else:
                self._complain(f"{self.path} can't be read ({error})")
        return otherwise

    def _write(self, write: Callable[[_Answers], None]) -> None:
        # What was measured is worth more than that it is kept.
        for is_last in (False, True):
            try:
                write(self._answers)
            except (sqlite3.DatabaseError, OSError) as error:
                if isinstance(error, sqlite3.DatabaseError) and _is_broken(error) and not is_last:
                    self.close()
                    self._files = self._set_aside(error)
                    continue
                self._complain(f"{self.path} can't be written ({error}), the answer isn't kept")
            return

    def _complain(self, text: str) -> None:
        self.note, self.is_in_trouble = text, True

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        if self._files is not None:
            self._files.close()
            self._files = None

    @property
    def _answers(self) -> _Answers:
        # A connection must not be used by the child of a fork.
        if self._files is None or self._files.process != os.getpid():
            self._files = self._open()
        return self._files

    def _open(self) -> _Answers:
        if self.path == ":memory:":
            return _SqliteAnswers(self.path)
        path = Path(self.path)
        kind = file_system_kind(path, self._mounts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind in NETWORK_FILE_SYSTEMS:
                folder = path.with_name(f"{path.name}.d")
                self.note = (
                    f"{path.parent} is on a network file system ({kind}), where SQLite's locks "
                    f"can't be trusted; every process keeps a file of its own in {folder} "
                    "(set FORETUNE_CACHE to a local folder for one database)"
                )
                return _FolderAnswers(folder)
            return _SqliteAnswers(self.path)
        except OSError as error:
            raise InputError(
                f"can't be written ({error.strerror}); set FORETUNE_CACHE to a folder that can",
                self.path,
            ) from None
        except sqlite3.OperationalError as error:
            raise InputError(
                f"can't be opened ({error}); set FORETUNE_CACHE to a folder that can be written",
                self.path,
            ) from None
        except sqlite3.DatabaseError as error:
            return self._set_aside(error)

    def _set_aside(self, error: sqlite3.DatabaseError) -> _Answers:
        """Start anew beside a file that can't be used."""
        path = Path(self.path)
        broken = path.with_name(f"{path.name}.broken")
        self._complain(f"{path} was no usable database ({error}); it is now {broken}")
        try:
            return self._replaced(path, broken)
        except OSError as failure:
            raise InputError(
                f"is no usable database ({error}) and can't be set aside ({failure.strerror}); "
                "set FORETUNE_CACHE to a folder that can be written",
                self.path,
            ) from None

    def _replaced(self, path: Path, broken: Path) -> _Answers:
        # The lock is the kernel's: it ends with its process.
        with path.with_name(f"{path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with suppress(sqlite3.DatabaseError):
                # Another process may have done it, and have written since.
                fresh = _SqliteAnswers(self.path)
                if fresh.is_sound():
                    return fresh
                fresh.close()
            with suppress(FileNotFoundError):
                path.replace(broken)
            for ending in ("-wal", "-shm"):
                # A new database must not take up what the old one hadn't finished.
                path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)
            return _SqliteAnswers(self.path)


class _Record(NamedTuple):
    """A single fact, by its kind, problem and candidate."""

    kind: str
    problem: str
    candidate: str
    content: str


#: Answers with their facts; records with their facts and problems.
_Contents = tuple[list[tuple[str, str]], list[tuple[str, str, str]]]


class _Answers(ABC):
    """Texts by context and problem; records by kind and candidate too."""

    def __init__(self) -> None:
        self.process = os.getpid()

    @abstractmethod
    def get(self, context: str, problem: str) -> str | None: ...

    @abstractmethod
    def put(self, context: str, facts: str, problem: str, answer: str) -> None: ...

    @abstractmethod
    def put_records(self, context: str, facts: str, rows: Sequence[_Record]) -> None: ...

    @abstractmethod
    def records(self, context: str, kind: str, problem: str | None) -> list[_Record]: ...

    @abstractmethod
    def latest(self, context: str, kind: str, count: int) -> list[_Record]: ...

    @abstractmethod
    def forget(self, context: str, problem: str) -> None: ...

    @abstractmethod
    def contents(self, kind: str) -> _Contents:
        """Everything, of records those of a kind."""

    @abstractmethod
    def close(self) -> None: ...


class _SqliteAnswers(_Answers):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._database = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            if path != ":memory:":
                self._write_ahead()
            self._database.executescript(_SCHEMA)
            self._check()
        except sqlite3.Error:
            self._database.close()
            raise

    def _check(self) -> None:
        try:
            self._database.execute("SELECT context, problem, answer, time FROM found LIMIT 0")
            self._database.execute("SELECT id, facts FROM context LIMIT 0")
            self._database.execute("SELECT kind, candidate, content FROM record LIMIT 0")
        except sqlite3.OperationalError as error:
            raise sqlite3.DatabaseError(str(error)) from None

    def is_sound(self) -> bool:
        """Whether every page can be read."""
        try:
            (told,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.DatabaseError:
            return False
        return bool(told == "ok")

    def _write_ahead(self) -> None:
        # Two processes that open a new file at once: the switch doesn't wait for the other's lock.
        until = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self._database.execute("PRAGMA journal_mode=WAL")
                self._database.execute("PRAGMA synchronous=NORMAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def get(self, context: str, problem: str) -> str | None:
        row = self._database.execute(
            "SELECT answer FROM found WHERE context = ? AND problem = ?", (context, problem)
        ).fetchone()
        return row[0] if row else None

    def put(self, context: str, facts: str, problem: str, answer: str) -> None:
        # The connection commits at the end of the block, and undoes it if it fails.
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute("INSERT OR IGNORE INTO context VALUES (?, ?)", (context, facts))
            self._database.execute(
                "INSERT OR REPLACE INTO found VALUES (?, ?, ?, ?)",
                (context, problem, answer, time.time()),
            )

    def put_records(self, context: str, facts: str, rows: Sequence[_Record]) -> None:
        now = time.time()
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute("INSERT OR IGNORE INTO context VALUES (?, ?)", (context, facts))
            self._database.executemany(
                "INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?, ?, ?)",
                [(context, *row, now) for row in rows],
            )

    def records(self, context: str, kind: str, problem: str | None) -> list[_Record]:
        words = (
            "SELECT kind, problem, candidate, content FROM record WHERE context = ? AND kind = ?"
        )
        if problem is None:
            rows = self._database.execute(words, (context, kind))
        else:
            rows = self._database.execute(f"{words} AND problem = ?", (context, kind, problem))
        return [_Record(*row) for row in rows]

    def latest(self, context: str, kind: str, count: int) -> list[_Record]:
        rows = self._database.execute(
            "SELECT kind, problem, candidate, content FROM record WHERE context = ? AND kind = ?"
            " ORDER BY time DESC LIMIT ?",
            (context, kind, count),
        )
        return [_Record(*row) for row in rows]

    def forget(self, context: str, problem: str) -> None:
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            for table in ("found", "record"):
                self._database.execute(
                    f"DELETE FROM {table} WHERE context = ? AND problem = ?", (context, problem)
                )

    def contents(self, kind: str) -> _Contents:
        answers = self._database.execute(
            "SELECT facts, answer FROM found JOIN context ON context = id"
        )
        records = self._database.execute(
            "SELECT facts, problem, content FROM record JOIN context ON context = id"
            " WHERE kind = ?",
            (kind,),
        )
        return answers.fetchall(), records.fetchall()

    def close(self) -> None:
        self._database.close()


class _FolderAnswers(_Answers):
    """A file for each process, merged when read."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        import socket  # few stores need it

        folder.mkdir(exist_ok=True)
        self._own = folder / f"{socket.gethostname()}-{os.getpid()}.jsonl"
        self._read_to: dict[Path, int] = {}
        #: By context, problem, kind and candidate, the last two empty for answers. What was
        #: forgotten has None for its content.
        self._merged: dict[tuple[str, str, str, str], _Line] = {}

    def get(self, context: str, problem: str) -> str | None:
        self._read_new()
        line = self._merged.get((context, problem, "", ""))
        return line.content if line else None

    def put(self, context: str, facts: str, problem: str, answer: str) -> None:
        self._append([[context, problem, time.time(), answer, facts]])

    def put_records(self, context: str, facts: str, rows: Sequence[_Record]) -> None:
        now = time.time()
        self._append(
            [
                [context, row.problem, now, row.content, facts, row.kind, row.candidate]
                for row in rows
            ]
        )

    def records(self, context: str, kind: str, problem: str | None) -> list[_Record]:
        return [row for row, _ in self._of_kind(context, kind, problem)]

    def latest(self, context: str, kind: str, count: int) -> list[_Record]:
        rows = sorted(self._of_kind(context, kind, None), key=lambda row: row[1], reverse=True)
        return [row for row, _ in rows[:count]]

    def forget(self, context: str, problem: str) -> None:
        self._read_new()
        now = time.time()
        gone = [key for key in self._merged if key[:2] == (context, problem)]
        self._append([[*key[:2], now, None, "", *key[2:]] for key in gone])

    def contents(self, kind: str) -> _Contents:
        self._read_new()
        known = [(key, line) for key, line in self._merged.items() if line.content is not None]
        answers = [(line.facts, line.content or "") for key, line in known if not key[2]]
        records = [
            (line.facts, key[1], line.content or "") for key, line in known if key[2] == kind
        ]
        return answers, records

    def close(self) -> None:
        self._merged.clear()
        self._read_to.clear()

    def _of_kind(
        self, context: str, kind: str, problem: str | None
    ) -> Iterator[tuple[_Record, float]]:
        self._read_new()
        for (known_context, known_problem, known_kind, candidate), line in self._merged.items():
            is_asked_for = known_context == context and known_kind == kind
            if is_asked_for and problem in (None, known_problem) and line.content is not None:
                yield _Record(kind, known_problem, candidate, line.content), line.at

    def _append(self, lines: Sequence[Sequence[Any]]) -> None:
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        handle = os.open(self._own, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            # The file may end in half a line of a process of the same number that was killed.
            os.write(handle, f"\n{text}".encode())
            os.fsync(handle)
        finally:
            os.close(handle)

    def _read_new(self) -> None:
        for path in self._folder.glob("*.jsonl"):
            self._read(path)

    def _read(self, path: Path) -> None:
        start = self._read_to.get(path, 0)
        try:
            with path.open("rb") as file:
                file.seek(start)
                content = file.read()
        except OSError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        self._read_to[path] = start + len(whole)
        for line in filter(None, whole.split(b"\n")):
            try:
                context, problem, at, answer, facts, *kind = json.loads(line)
                key = (context, problem, *(kind or ("", "")))
                new = _Line(at, answer, facts)
                if len(key) == 4 and (key not in self._merged or self._merged[key].at <= at):
                    self._merged[key] = new
            except (ValueError, TypeError):  # written by a process that was killed meanwhile
                continue


class _Line(NamedTuple):
    """What a line of a file says of its key."""

    at: float
    content: str | None
    facts: str


def _readable(read: Callable[[str], T], texts: Iterable[str]) -> Iterator[T]:
    """Read texts, but for those that something else wrote."""
    for text in texts:
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            yield read(text)


def _is_broken(error: sqlite3.DatabaseError) -> bool:
    # The lowest byte is the kind, the others tell more of it.
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@lru_cache(maxsize=4096)
def _read_answer(text: str) -> tuple[Found, int | None, bool]:
    """Give an answer with the limits that it was found under; most are asked for again."""
    answer = json.loads(text)
    found = replace(Found.from_dict(answer["found"]), is_stored=True)
    return found, answer["workspace_limit"], answer["deterministic"]


def context_facts(device: DeviceProperties) -> str:
    """Everything that an answer holds for, as JSON."""
    from foretune import __version__

    facts: dict[str, Any] = {
        "format": _FORMAT,
        "foretune": __version__,
        "backend": device.backend,
        "arch": device.arch,
        "name": device.name,
        "compute_units": device.compute_units,
        "driver": device.driver,
        "compiler": device.compiler,
    }
    return json.dumps(facts)


@lru_cache(maxsize=64)
def context_id(device: DeviceProperties) -> str:
    """Short name of what an answer holds for.

    Examples
    --------
    >>> old = DeviceProperties("cuda", "NVIDIA H200", "sm_90", 132, 32, 49152, 1024, driver="12")
    >>> new = DeviceProperties("cuda", "NVIDIA H200", "sm_90", 132, 32, 49152, 1024, driver="13")
    >>> context_id(old) == context_id(new)
    False
    """
    return sha256(context_facts(device).encode()).hexdigest()[:16]


def _default_path() -> Path:
    chosen = os.environ.get("FORETUNE_CACHE")
    if chosen:
        return Path(chosen) / "found.db"
    from platformdirs import user_data_path

    return user_data_path("foretune") / "found.db"
