"""The user's own MIOpen databases: their names, their folder, and adding to them.

MIOpen reads a user database by an exact name, which holds the release, its build's tweak and the
device, and it finds the folder by rules of its own. Both are followed here. Files are edited as
lines, so that what others wrote stays as it is, malformed lines included.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from foretune.errors import InputError
from foretune.files import MOUNTS, file_system_kind, replace_file
from foretune.miopen.ledger import Entry
from foretune.miopen.lock import temporary_folder
from foretune.miopen.names import database_base_name

#: The first and the last release (major, minor) whose solvers and workspaces are known.
_FIRST, _LAST = (3, 3), (3, 6)
#: The releases whose solvers are known, in words.
KNOWN_RELEASES = "3.3, 3.4, 3.5 and 3.6"

_RELEASE = re.compile(
    r"(\d{1,4})[._](\d{1,4})[._](\d{1,6})(?:[._]([0-9A-Za-z-]*))?(\+mlir)?", re.ASCII
)
# File systems that MIOpen takes for networked.
_NETWORKED = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "coda", "ocfs2", "afs", "lustre", "ceph"}
)


@dataclass(frozen=True)
class Release:
    """A build of MIOpen.

    Parameters
    ----------
    major, minor, patch : int
        Its version.
    tweak : str or None
        What its build adds, such as "a85ca8a54-dirty"; "" for a build that adds nothing, None if
        it isn't known.
    mlir : bool, default False
        Whether it was built with rocMLIR.

    Examples
    --------
    >>> release = parse_release("3.3.0.a85ca8a54-dirty")
    >>> release.suffix, release.solvers
    ('3_3_0_a85ca8a54-dirty', '3.3')
    """

    major: int
    minor: int
    patch: int
    tweak: str | None = None
    mlir: bool = False

    @property
    def version(self) -> tuple[int, int, int]:
        """The three numbers."""
        return self.major, self.minor, self.patch

    @property
    def suffix(self) -> str:
        """Part of the file names; asking needs the tweak."""
        assert self.tweak is not None
        return f"{self.major}_{self.minor}_{self.patch}_{self.tweak}"

    @property
    def solvers(self) -> str:
        """Release as the table of solvers wants it (`foretune.miopen.solvers.can_run`)."""
        return f"{self.major}.{self.minor}{'+mlir' if self.mlir else ''}"

    def __str__(self) -> str:
        version = f"{self.major}.{self.minor}.{self.patch}"
        return f"{version}.{self.tweak}" if self.tweak is not None else version


def parse_release(text: str) -> Release:
    """Release that a text such as "3.3.0", "3.3.0.a85ca8a54-dirty" or "3_3_0_" names.

    A dot at the end, "3.3.0.", stands for a build without a tweak.

    Raises
    ------
    InputError
        If it is no release, or one whose solvers and workspaces aren't known.

    Examples
    --------
    >>> parse_release("3.3.0"), parse_release("3.6.2.+mlir").tweak
    (Release(major=3, minor=3, patch=0, tweak=None, mlir=False), '')
    """
    match = _RELEASE.fullmatch(text.strip())
    if not match:
        raise InputError(
            "expected a release with three numbers, as in the names of its files: 3.3.0, or "
            f"3.3.0.a85ca8a54-dirty; got {text!r}; known are {KNOWN_RELEASES}",
            "MIOpen version",
        )
    release = Release(int(match[1]), int(match[2]), int(match[3]), match[4], match[5] is not None)
    if not _FIRST <= (release.major, release.minor) <= _LAST:
        # A solver that asks for more workspace than an entry says makes a call of MIOpen fail.
        raise InputError(
            f"which solvers MIOpen {text} runs, and with how much workspace, isn't known; known "
            f"are {KNOWN_RELEASES}",
            "MIOpen version",
        )
    return release


def user_find_db_name(arch: str, compute_units: int, release: Release) -> str:
    """Name of a device's user find-db.

    Examples
    --------
    >>> user_find_db_name("gfx942", 304, parse_release("3.3.0.a85ca8a54-dirty"))
    'gfx942130.HIP.3_3_0_a85ca8a54-dirty.ufdb.txt'
    """
    return f"{database_base_name(arch, compute_units)}.HIP.{release.suffix}.ufdb.txt"


def user_perf_db_name(arch: str, compute_units: int, release: Release) -> str:
    """Name of a device's user perf-db, a text as of default builds.

    Examples
    --------
    >>> user_perf_db_name("gfx906", 60, parse_release("3.4.0."))
    'gfx906_60.HIP.3_4_0_.udb.txt'
    """
    return f"{database_base_name(arch, compute_units)}.HIP.{release.suffix}.udb.txt"


def tweaks_in(folder: str | os.PathLike[str], release: Release) -> tuple[str, ...]:
    """List the tweaks of a release that user databases in a folder carry in their names.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Path(folder, "gfx90a68.HIP.3_3_0_a85ca8a54.ufdb.txt").touch()
    ...     tweaks_in(folder, parse_release("3.3.0"))
    ('a85ca8a54',)
    """
    version = f"{release.major}_{release.minor}_{release.patch}_"
    name = re.compile(rf".*\.HIP\.{version}([0-9A-Za-z-]*)\.u(?:fdb|db)\.txt")
    try:
        matches = [name.fullmatch(entry) for entry in os.listdir(folder)]  # noqa: PTH208
    except OSError:
        return ()
    return tuple(sorted({match[1] for match in matches if match}))


def default_folder(environment: Mapping[str, str] | None = None) -> str:
    """Folder where MIOpen keeps user databases, as it spells it.

    Parameters
    ----------
    environment : mapping of str, optional
        Default: that of this process.

    Raises
    ------
    InputError
        If it is on a network file system. There MIOpen silently takes a temporary folder of the
        machine, and which one depends on the release.

    Examples
    --------
    >>> default_folder({"MIOPEN_USER_DB_PATH": "~/db", "HOME": "/home/me"})
    '/home/me/db'
    """
    environment = os.environ if environment is None else environment
    home = environment.get("HOME", "")
    home = home if home not in ("", "/") else str(temporary_folder())
    if path := environment.get("MIOPEN_USER_DB_PATH"):
        return path.replace("~", home).rstrip("/") or "/"
    path = f"{home}/.config/miopen"
    if kind := network_file_system(path):
        raise InputError(
            f"is on a network file system ({kind}), where MIOpen silently uses a temporary folder "
            "of each machine instead, which doesn't last; start the program with "
            "MIOPEN_USER_DB_PATH=FOLDER, and give the same folder to foretune as --out FOLDER",
            path,
        )
    return path


def network_file_system(path: str | os.PathLike[str], mounts: Path = MOUNTS) -> str:
    """Kind of the network file system that a path is on; empty if it is on another.

    Parameters
    ----------
    path : path-like
        It need not exist.
    mounts : Path, optional
        The kernel's list of mounts.

    Examples
    --------
    >>> network_file_system("/", Path("no such list"))
    ''
    """
    kind = file_system_kind(path, mounts)
    return kind if kind in _NETWORKED else ""


class UserDatabase:
    r"""Lines of a find-db or perf-db text, for editing.

    Of several lines with one key the first counts, and of several solvers in a line the first, as
    for MIOpen. All other text stays as it is.

    Parameters
    ----------
    text : str
        The file's content.

    Examples
    --------
    >>> database = UserDatabase("# mine\nkey=fft:1,0,x\n")
    >>> database.put(Entry("key", "GemmFwdRest", "2,0,y"))
    >>> print(database.text(), end="")
    # mine
    key=fft:1,0,x;GemmFwdRest:2,0,y
    """

    def __init__(self, text: str = "") -> None:
        self._lines: list[str | None] = list(text.split("\n"))
        if self._lines[-1] == "":
            self._lines.pop()
        self._at: dict[str, int] = {}
        for number, line in enumerate(self._lines):
            key, equals, _ = (line or "").partition("=")
            if equals and key:
                self._at.setdefault(key, number)

    def __contains__(self, key: str) -> bool:
        return key in self._at

    def __iter__(self) -> Iterator[Entry]:
        for key in self._at:
            for solver, values in self.solvers(key).items():
                yield Entry(key, solver, values)

    def solvers(self, key: str) -> dict[str, str]:
        """Solvers of a problem, and what is said of each; none for an unknown key."""
        found: dict[str, str] = {}
        for item in self._items(key):
            solver, colon, values = item.partition(":")
            if colon:
                found.setdefault(solver, values)
        return found

    def put(self, entry: Entry) -> None:
        """Add an entry, or say something else of a solver that is there."""
        text = f"{entry.id}:{entry.values}"
        if entry.key not in self._at:
            self._at[entry.key] = len(self._lines)
            self._lines.append(f"{entry.key}={text}")
            return
        items = self._items(entry.key)
        same = [i for i, item in enumerate(items) if item.partition(":")[0] == entry.id]
        items[same[0] if same else len(items) :] = [text, *items[same[0] + 1 :]] if same else [text]
        self._set(entry.key, items)

    def remove(self, key: str, solver: str) -> None:
        """Take a solver out of a problem, and the line with the last of them."""
        items = self._items(key)
        for i, item in enumerate(items):
            if item.partition(":")[0] == solver:
                del items[i]
                break
        self._set(key, items)

    def text(self) -> str:
        """Content of the edited file."""
        return "".join(f"{line}\n" for line in self._lines if line is not None)

    def _items(self, key: str) -> list[str]:
        line = self._lines[self._at[key]] if key in self._at else None
        values = (line or "").partition("=")[2]
        return values.split(";") if values else []

    def _set(self, key: str, items: list[str]) -> None:
        at = self._at[key]
        if items:
            self._lines[at] = f"{key}={';'.join(items)}"
        else:
            self._lines[at] = None
            del self._at[key]


def read_user_database(path: Path) -> UserDatabase:
    """Read a database for editing; an empty one if there is no such file.

    Raises
    ------
    InputError
        If it can't be read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return UserDatabase()
    except OSError as error:
        raise InputError(f"can't be read ({error.strerror})", str(path)) from None
    return UserDatabase(content.decode(errors="surrogateescape"))


def write_user_database(path: Path, database: UserDatabase) -> None:
    """Write an edited database in one step; the caller holds MIOpen's lock.

    Programs that run meanwhile see the new entries if MIOpen has left its file of times there.
    """
    with replace_file(path) as temporary:
        temporary.write_bytes(database.text().encode(errors="surrogateescape"))
    times = Path(f"{path}.time")
    # Made anew it would be in the way on another machine, whose clock starts elsewhere.
    if times.exists():
        times.write_text(f"{time.clock_gettime_ns(time.CLOCK_MONOTONIC)}")


def prepare_folder(folder: str, parents: bool = False) -> bool:
    """Make a folder for databases if it is missing, and check that it can be written.

    Parameters
    ----------
    folder : str
    parents : bool, default False
        Also make the folders that it is in.

    Returns
    -------
    bool
        Whether it was made.

    Raises
    ------
    InputError
        If it can't be used.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise InputError("this is no folder", folder)
    made = False
    if not path.exists():
        try:
            path.mkdir(parents=parents)
        except OSError as error:
            raise InputError(
                f"there is no such folder, and it can't be made ({error.strerror})", folder
            ) from None
        made = True
    try:
        # Tried, because permissions don't say all: a file system may be mounted read-only.
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise InputError(
            f"the folder can't be written ({error.strerror}); name another by --out FOLDER", folder
        ) from None
    return made
