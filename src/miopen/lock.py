"""MIOpen's lock on a user database, taken as MIOpen takes it.

Releases differ in where the lock file is:

* in the temporary folder, named after the MD5 sum of the database's folder as the process spells
  it and the database's name;
* since late 2025 (with a break) in ``miopen-lockfiles`` beside the database. Then a hard link
  beside the lock file also has to be won, for nodes that share a folder; its owner keeps the
  link's time fresh.

Both kinds are taken, so whichever release is running waits. The locks on the files are POSIX
record locks, as Boost's ``file_lock`` takes them.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path

from foretune.errors import InputError

#: Seconds that MIOpen itself waits before it gives up.
DEFAULT_TIMEOUT = 60.0

_FOLDER = "miopen-lockfiles"
_POLL_SECONDS = 0.02
#: A link older than this belongs to a process that is gone; MIOpen says so after 5 ms already.
_STALE_SECONDS = 10.0
# struct flock of 64-bit Linux: type, whence, start, length, process.
_FLOCK = "@hhqqi4x"


@dataclass(frozen=True)
class Holder:
    """Who holds a lock.

    Parameters
    ----------
    process : int
        Process id; 0 if it is on another machine or in another container.
    command : str
        What runs; empty if that can't be seen.

    Examples
    --------
    >>> str(Holder(4711, "python3 train.py")), str(Holder(0, ""))
    ('process 4711 (python3 train.py)', 'a process of another machine or container')
    """

    process: int
    command: str

    def __str__(self) -> str:
        if not self.process:
            what = "a process of another machine or container"
            return f"{what} ({self.command})" if self.command else what
        return f"process {self.process}" + (f" ({self.command})" if self.command else "")


def temporary_folder() -> Path:
    """Folder for temporary files by the rule of MIOpen's C++ runtime, not by Python's.

    Examples
    --------
    >>> temporary_folder().is_absolute()
    True
    """
    for name in ("TMPDIR", "TMP", "TEMP", "TEMPDIR"):
        if folder := os.environ.get(name):
            return Path(folder)
    return Path("/tmp")


def lock_files(database: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Files that some release of MIOpen locks for a user database.

    Parameters
    ----------
    database : path-like
        The database; its folder as programs spell it (``MIOPEN_USER_DB_PATH``).

    Examples
    --------
    >>> [path.name for path in lock_files("/db/a.ufdb.txt")]  # doctest: +ELLIPSIS
    ['a.ufdb.txt.lock', '..._a.ufdb.txt.lock']
    """
    folder, name = os.path.split(os.fspath(database))
    spellings = dict.fromkeys((folder, os.path.abspath(folder), os.path.realpath(folder)))  # noqa: PTH100
    temporary = temporary_folder() / _FOLDER
    return (
        Path(folder, _FOLDER, f"{name}.lock"),
        *(
            temporary / f"{md5(spelling.encode(), usedforsecurity=False).hexdigest()}_{name}.lock"
            for spelling in spellings
        ),
    )


@contextmanager
def database_lock(
    database: str | os.PathLike[str],
    timeout: float = DEFAULT_TIMEOUT,
    waiting: Callable[[Holder], object] | None = None,
) -> Iterator[None]:
    """Hold MIOpen's lock on a user database.

    Parameters
    ----------
    database : path-like
        The database, whose folder exists.
    timeout : float, default 60
        Seconds to wait for another process.
    waiting : callable, optional
        Told once who is waited for.

    Raises
    ------
    InputError
        If another process still holds it after that time, or a lock file can't be used.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with database_lock(Path(folder, "a.ufdb.txt")):
    ...         pass
    """
    if not timeout >= 0:
        raise InputError(f"expected seconds, at least 0, got {timeout:g}", "timeout")
    deadline = time.monotonic() + timeout
    paths = lock_files(database)
    told = False

    def wait(holder: Holder) -> None:
        nonlocal told
        if time.monotonic() >= deadline:
            raise InputError(
                f"is held by {holder}, for {timeout:g} s already; wait for it to end, or stop it, "
                "and start again: nothing was written",
                os.fspath(database),
            )
        if waiting and not told:
            told = True
            waiting(holder)
        time.sleep(_POLL_SECONDS)

    with ExitStack() as held:
        for path in paths:
            descriptor = _open(path)
            held.callback(os.close, descriptor)
            while not _try_lock(descriptor):
                wait(_holder(descriptor))
        held.enter_context(_link(paths[0], wait))
        yield


def _open(path: Path) -> int:
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            # As MIOpen does it: other users of the machine keep their lock files there too.
            path.parent.chmod(0o777)
        is_new = not path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        if is_new:
            with suppress(OSError):  # somebody else was first
                os.fchmod(descriptor, 0o666)
    except OSError as error:
        raise InputError(
            f"MIOpen's lock file can't be used ({error.strerror}); nothing was written", str(path)
        ) from None
    return descriptor


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _holder(descriptor: int) -> Holder:
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    process: int = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))[4]
    return _describe(max(process, 0))


def _describe(process: int) -> Holder:
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        words = []
    text = b" ".join(filter(None, words)).decode(errors="replace")
    return Holder(process, "".join(c if c.isprintable() else "?" for c in text)[:80])


@contextmanager
def _link(lock: Path, wait: Callable[[Holder], None]) -> Iterator[None]:
    """Win the hard link that nodes with a common folder compete for."""
    link = Path(f"{lock}.fslock")
    mine = Path(f"{link}.{socket.gethostname()}.{os.getpid()}")
    try:
        mine.touch()
        # MIOpen takes a link that isn't touched within 5 ms for stale; a time to come can't be.
        ahead = time.time() + DEFAULT_TIMEOUT
        os.utime(mine, (ahead, ahead))
        while True:
            try:
                link.hardlink_to(mine)
                break
            except FileExistsError:
                with suppress(FileNotFoundError):
                    if time.time() - link.stat().st_mtime > _STALE_SECONDS:
                        link.unlink()
                        continue
                wait(_owner_of(link))
            except OSError:  # a file system without hard links, on which MIOpen can't lock either
                link = mine
                break
        yield
    finally:
        if link.exists() and link.samefile(mine):
            link.unlink()
        mine.unlink(missing_ok=True)


def _owner_of(link: Path) -> Holder:
    """Name the host and process whose file it is, which that file's name says."""
    with suppress(OSError):
        for path in link.parent.glob(f"{link.name}.*"):
            if path.samefile(link):
                host, _, process = path.name[len(link.name) + 1 :].rpartition(".")
                return Holder(0, f"process {process} on {host}")
    return Holder(0, "")
