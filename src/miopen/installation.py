"""MIOpen as it is installed on this machine: which library, which release, which system databases.

PyTorch's ROCm wheels carry a MIOpen of their own, so what a Python program loads is rarely the one
in ``/opt/rocm``. Nothing is loaded to find out: the library's file is read.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from foretune.errors import InputError
from foretune.miopen.user_db import KNOWN_RELEASES, Release, parse_release, tweaks_in

_PATTERN = "libMIOpen.so*"
# A commit, or a count and a commit; both as the build's git describes them.
_TWEAK = rb"(?:[0-9]+-)?[0-9a-f]{7,40}(?:-dirty)?"
_TEXTS = re.compile(
    rb"(?<![\w.])(\d{1,2})(?:\.(\d{1,3})\.(\d{1,5})\.|_(\d{1,3})_(\d{1,5})_)(%b)(?=\0)" % _TWEAK,
    re.ASCII,
)
_DEFINE = re.compile(r"^#define\s+MIOPEN_VERSION_(MAJOR|MINOR|PATCH|TWEAK)\s*(\S*)$", re.MULTILINE)


@dataclass(frozen=True)
class Installation:
    """A MIOpen that is installed.

    Parameters
    ----------
    library : Path
        Its shared library.
    release : Release or None
        None if neither a header nor the library's texts say it.
    system_folder : Path
        Where it looks for the databases that AMD ships.

    Examples
    --------
    >>> Installation(Path("/opt/rocm/lib/libMIOpen.so.1"), None, Path("db")).library.name
    'libMIOpen.so.1'
    """

    library: Path
    release: Release | None
    system_folder: Path


def find_installation(
    environment: Mapping[str, str] | None = None, roots: Sequence[Path] | None = None
) -> Installation | None:
    """Find the MIOpen that a Python program of this machine loads.

    First that of the installed PyTorch, then that of ROCm's own wheels, then ROCm's.

    Parameters
    ----------
    environment : mapping of str, optional
        Default: that of this process. ``MIOPEN_SYSTEM_DB_PATH`` and ``ROCM_PATH`` are looked at.
    roots : sequence of Path, optional
        Folders with libraries to look in instead.

    Returns
    -------
    Installation or None
        None if there is none.

    Examples
    --------
    >>> find_installation({}, [Path("no such folder")]) is None
    True
    """
    environment = os.environ if environment is None else environment
    for folder in _library_folders(environment) if roots is None else roots:
        for path in sorted(folder.glob(_PATTERN), key=lambda path: len(path.name)):
            library = path.resolve()
            if library.is_file():
                return Installation(
                    path, read_release(library), system_folder(library, environment)
                )
    return None


def system_folder(library: Path, environment: Mapping[str, str] | None = None) -> Path:
    """Folder of the databases that a library takes for AMD's.

    Examples
    --------
    >>> str(system_folder(Path("/opt/rocm/lib/libMIOpen.so.1.0"), {}))
    '/opt/rocm/share/miopen/db'
    """
    environment = os.environ if environment is None else environment
    if path := environment.get("MIOPEN_SYSTEM_DB_PATH"):
        return Path(path)
    return library.parent.parent / "share" / "miopen" / "db"


def read_release(library: Path) -> Release | None:
    """Release of a library, by the header beside it or by the texts in it.

    Parameters
    ----------
    library : Path
        The shared library, links resolved.

    Returns
    -------
    Release or None
        None if nothing says it, or if several releases are named.

    Examples
    --------
    >>> read_release(Path("no such library")) is None
    True
    """
    header = library.parent.parent / "include" / "miopen" / "version.h"
    try:
        defined = dict(_DEFINE.findall(header.read_text(errors="replace")))
        return _parse([defined["MAJOR"], defined["MINOR"], defined["PATCH"], defined["TWEAK"]])
    except (OSError, KeyError):
        pass
    try:
        found = {_parse(parts) for parts in _texts(library)} - {None}
    # It is gone, empty, cut off or no library.
    except (OSError, ValueError, IndexError, OverflowError, struct.error):
        return None
    return found.pop() if len(found) == 1 else None


def _parse(parts: Sequence[str]) -> Release | None:
    try:
        return parse_release(".".join(parts))
    except InputError:  # none that is known, which is the caller's to say
        return None


def _texts(library: Path) -> Iterator[tuple[str, ...]]:
    """Yield what looks like a release in the library's constants."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
        for start, size in _constants(image):
            for match in _TEXTS.finditer(image, start, min(start + size, len(image))):
                major, minor, patch, minor_2, patch_2, tweak = match.groups()
                yield tuple(
                    part.decode() for part in (major, minor or minor_2, patch or patch_2, tweak)
                )


def _constants(image: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Yield offset and size of the sections of a 64-bit ELF file that hold constants.

    The rest of the library is kernels, hundreds of megabytes of them.
    """
    if image[:5] != b"\x7fELF\x02":
        return
    (table,) = struct.unpack_from("<Q", image, 40)
    width, count, names = struct.unpack_from("<HHH", image, 58)
    headers = [struct.unpack_from("<IIQQQQ", image, table + i * width) for i in range(count)]
    texts = headers[names][4]
    for name, _, _, _, offset, size in headers:
        start = texts + name
        if image[start : start + 8] == b".rodata\0" or image[start : start + 8] == b".rodata.":
            yield offset, size


def _library_folders(environment: Mapping[str, str]) -> Iterator[Path]:
    try:
        torch = find_spec("torch")
    except (ImportError, ValueError):
        torch = None
    if torch and torch.origin:
        yield Path(torch.origin).parent / "lib"
    for entry in sys.path:
        for package in sorted(Path(entry or ".").glob("_rocm_sdk_libraries*")):
            yield package / "lib"
    if root := environment.get("ROCM_PATH"):
        yield Path(root, "lib")
    yield Path("/opt/rocm/lib")
    yield from sorted(Path("/opt").glob("rocm-*/lib"), reverse=True)


def choose_release(
    text: str | None, installation: Installation | None, folder: str | os.PathLike[str]
) -> Release:
    """Release that databases are to be written for, with its tweak.

    Parameters
    ----------
    text : str or None
        As `parse_release` reads it; None for that of the installation.
    installation : Installation or None
        Says the tweak, if it is of the same version.
    folder : path-like
        Names of user databases in it say the tweak too.

    Raises
    ------
    InputError
        If the release or its tweak isn't known; it says what is known and how to tell it.

    Examples
    --------
    >>> str(choose_release("3.4.0.1a2b3c4d5", None, "no such folder"))
    '3.4.0.1a2b3c4d5'
    """
    installed = installation.release if installation else None
    if text is None:
        if installed is None:
            what = (
                f"{installation.library} doesn't say which release it is, or is of one that isn't "
                "known"
                if installation
                else "there is no MIOpen on this machine"
            )
            raise InputError(
                f"{what}; name the release of the program's MIOpen by --miopen, such as "
                f"--miopen 3.3.0.a85ca8a54; known are {KNOWN_RELEASES}"
            )
        return installed
    release = parse_release(text)
    if release.tweak is not None:
        return release
    if installed and installed.version == release.version and installed.tweak is not None:
        tweaks: tuple[str, ...] = (installed.tweak,)
    else:
        tweaks = tweaks_in(folder, release)
    if len(tweaks) == 1:
        return replace(release, tweak=tweaks[0])
    found = (
        f"there are user databases of {', '.join(f'{release}.{tweak}' for tweak in tweaks)}"
        if tweaks
        else "neither an installed MIOpen nor a user database says it"
    )
    raise InputError(
        f"the tweak of MIOpen {release}, which is part of the file names, isn't known: {found}. "
        f"Name it, as in --miopen {release}.a85ca8a54; it ends the name of the folder in "
        f"~/.cache/miopen that a program with that MIOpen makes. For a build without one: "
        f"--miopen {release}.",
        "MIOpen version",
    )
