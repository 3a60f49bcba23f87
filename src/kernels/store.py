"""The user's database of what find found, shared by all processes of a user.

On a local file system it is one SQLite file with a write-ahead log. SQLite's locks don't hold on
network file systems (its documentation warns of corrupted files), so there it is a folder in which
every process appends lines to a file of its own, and whoever reads merges all of them: no lock is
needed, and nothing is lost.

Answers are kept apart by the version of this library, device, driver and compiler: what was found
under others is never served.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from foretune.errors import InputError
from foretune.files import MOUNTS, file_system_kind
from foretune.kernels.found import Found
from foretune.kernels.problem import Problem
from foretune.kernels.problem_text import format_problem
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
"""


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
        text = self._read(context_id(device), format_problem(problem))
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
        self._write(
            context_id(device),
            context_facts(device),
            format_problem(found.problem),
            json.dumps(answer, separators=(",", ":")),
        )

    def _read(self, context: str, problem: str) -> str | None:
        try:
            return self._answers.get(context, problem)
        except sqlite3.DatabaseError as error:
            if _is_broken(error):
                self.close()
                self._files = self._set_aside(error)
            else:
                self.note = f"{self.path} can't be read ({error})"
        return None

    def _write(self, *answer: str) -> None:
        # What was measured is worth more than that it is kept.
        try:
            self._answers.put(*answer)
        except (sqlite3.DatabaseError, OSError) as error:
            if isinstance(error, sqlite3.DatabaseError) and _is_broken(error):
                self.close()
                self._files = self._set_aside(error)
                self._files.put(*answer)
            else:
                self.note = f"{self.path} can't be written ({error}), the answer isn't kept"

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
        with suppress(FileNotFoundError):  # another process did it
            path.replace(broken)
        for ending in ("-wal", "-shm"):
            # A new database must not take up what the old one hadn't finished.
            path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)
        self.note = f"{path} was no usable database ({error}); it is now {broken}"
        return _SqliteAnswers(self.path)


class _Answers(ABC):
    """Texts by context and problem."""

    def __init__(self) -> None:
        self.process = os.getpid()

    @abstractmethod
    def get(self, context: str, problem: str) -> str | None: ...

    @abstractmethod
    def put(self, context: str, facts: str, problem: str, answer: str) -> None: ...

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
        except sqlite3.OperationalError as error:
            raise sqlite3.DatabaseError(str(error)) from None

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

    def close(self) -> None:
        self._database.close()


class _FolderAnswers(_Answers):
    """A file for each process, merged when read."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._own = folder / f"{socket.gethostname()}-{os.getpid()}.jsonl"
        self._read_to: dict[Path, int] = {}
        self._merged: dict[tuple[str, str], tuple[float, str]] = {}

    def get(self, context: str, problem: str) -> str | None:
        for path in self._folder.glob("*.jsonl"):
            self._read(path)
        found = self._merged.get((context, problem))
        return found[1] if found else None

    def put(self, context: str, facts: str, problem: str, answer: str) -> None:
        line = json.dumps([context, problem, time.time(), answer, facts]) + "\n"
        handle = os.open(self._own, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            # The file may end in half a line of a process of the same number that was killed.
            os.write(handle, f"\n{line}".encode())
            os.fsync(handle)
        finally:
            os.close(handle)

    def close(self) -> None:
        self._merged.clear()
        self._read_to.clear()

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
                context, problem, at, answer, _ = json.loads(line)
            except ValueError:  # written by a process that was killed meanwhile
                continue
            if (context, problem) not in self._merged or self._merged[context, problem][0] <= at:
                self._merged[context, problem] = (at, answer)


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
