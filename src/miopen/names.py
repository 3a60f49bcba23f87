"""Names of MIOpen's database files, and of the devices that they are for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from foretune.errors import InputError
from foretune.miopen.patterns import compiled

#: Compute units that a device of each arch usually has, the first being the usual one.
USUAL_COMPUTE_UNITS = MappingProxyType(
    {
        "gfx906": (60, 64),
        "gfx908": (120,),
        "gfx90a": (104, 110),
        "gfx942": (304,),
        "gfx950": (256,),
    }
)

# Up to 64 units the count is decimal after "_", above that lower-case hexadecimal.
_FEATURES = r"(?P<features>(?:_nosramecc|_sramecc)?(?:_xnack)?)"
_ARCH_NAME = "gfx(?:1[0-9a-f]{3}|[2-9a-f][0-9a-f]{2})"
_BASE = (
    rf"(?P<arch>{_ARCH_NAME}){_FEATURES}"
    "(?:_(?P<few>[0-9]{1,2})|(?P<many>[1-9a-f][0-9a-f]{1,2}))"
)
_FILE = (
    rf"{_BASE}(?:\.(?P<backend>HIP|OpenCL)(?:\.(?P<version>[0-9]+_[0-9]+_[0-9]+_[0-9A-Za-z-]*))?"
    r"|_1\.[0-9]+\.[0-9]+)?"
    r"\.(?P<kind>fdb\.txt|ufdb\.txt|db\.txt|udb\.txt|db|udb)"
)
_ARCH = rf"({_ARCH_NAME}|sm_[0-9]{{2,3}}[af]?|cpu)(?::[A-Za-z0-9_+:-]*)?"


@dataclass(frozen=True)
class DatabaseName:
    """What the name of a database file says.

    Parameters
    ----------
    arch : str
        For example "gfx90a".
    compute_units : int
        The device's compute units.
    kind : {'find-db', 'perf-db'}
        What it holds.
    backend : str
        "HIP" or "OpenCL"; "" where the name doesn't say (system perf-dbs).
    user : bool
        Whether it is written on the user's machine; else it is shipped.

    Examples
    --------
    >>> parse_database_name("gfx942130.HIP.fdb.txt.bz2").compute_units
    304
    """

    arch: str
    compute_units: int
    kind: str
    backend: str = ""
    user: bool = False


@dataclass(frozen=True)
class DatabaseFile:
    """A database file that was found.

    Parameters
    ----------
    path : Path
        Where it is.
    name : DatabaseName
        What its name says.
    """

    path: Path
    name: DatabaseName


def database_base_name(arch: str, compute_units: int) -> str:
    """First part of the names of a device's databases.

    Parameters
    ----------
    arch : str
        As a device reports it; of the features only those that MIOpen puts into the name show.
    compute_units : int
        The device's compute units.

    Examples
    --------
    >>> database_base_name("gfx90a", 104), database_base_name("gfx906", 60)
    ('gfx90a68', 'gfx906_60')
    """
    _check_units(compute_units)
    name = parse_arch(arch)
    features = arch.strip().split(":")[1:]
    # Only these two archs can switch it, for MIOpen; all MI200 and MI300 report "sramecc+".
    if name in ("gfx906", "gfx908"):
        name += "_nosramecc" if "sramecc-" in features else ""
    name += "_xnack" if "xnack+" in features else ""
    return f"{name}_{compute_units}" if compute_units <= 64 else f"{name}{compute_units:x}"


def parse_database_name(name: str) -> DatabaseName | None:
    """Read what a file's name says, or None if it isn't that of a find-db or a perf-db.

    Examples
    --------
    >>> parse_database_name("gfx906_60.HIP.2_11_0_993628deb.ufdb.txt")
    DatabaseName(arch='gfx906', compute_units=60, kind='find-db', backend='HIP', user=True)
    >>> parse_database_name("gfx90a.tn.model") is None
    True
    """
    # What reads archives takes milliseconds to import, and a prediction reads none.
    from foretune.miopen.archive import ARCHIVES

    path = Path(name)
    match = compiled(_FILE).fullmatch(path.stem if path.suffix in ARCHIVES else path.name)
    if not match:
        return None
    units = int(match["few"]) if match["few"] else int(match["many"], 16)
    if match["many"] and units <= 64:
        return None
    kind = match["kind"]
    return DatabaseName(
        match["arch"],
        units,
        "find-db" if "fdb" in kind else "perf-db",
        match["backend"] or "",
        kind.startswith("u"),
    )


def find_databases(folder: str | os.PathLike[str], arch: str = "") -> tuple[DatabaseFile, ...]:
    """Find-dbs and perf-dbs in a folder, such as ``share/miopen/db`` of an installed ROCm.

    Parameters
    ----------
    folder : path-like
        Files in it are told apart by name, plain or compressed; folders below it are left alone.
    arch : str, optional
        Only those of this arch.

    Returns
    -------
    tuple of DatabaseFile
        Sorted by name. Empty if there are none.

    Raises
    ------
    InputError
        If there is no such folder.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Path(folder, "gfx90a6e.HIP.fdb.txt").touch()
    ...     [file.name.compute_units for file in find_databases(folder)]
    [110]
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError("there is no such folder", str(folder))
    wanted = parse_arch(arch) if arch else ""
    found = []
    for path in sorted(folder.iterdir()):
        name = parse_database_name(path.name)
        if name and path.is_file() and wanted in ("", name.arch):
            found.append(DatabaseFile(path, name))
    return tuple(found)


def parse_arch(text: str) -> str:
    """Arch without the features that a device reports after it.

    Examples
    --------
    >>> parse_arch("gfx90a:sramecc+:xnack-")
    'gfx90a'
    """
    match = compiled(_ARCH).fullmatch(text.strip())
    if not match:
        raise InputError(
            f"expected an arch such as gfx942 or gfx90a:sramecc+:xnack-, got {text!r}", "arch"
        )
    return match[1]


def usual_compute_units(arch: str) -> int | None:
    """Compute units that a device of an arch usually has; None if that isn't known.

    Examples
    --------
    >>> usual_compute_units("gfx942")
    304
    """
    counts = USUAL_COMPUTE_UNITS.get(parse_arch(arch))
    return counts[0] if counts else None


def _check_units(compute_units: int) -> None:
    if not 1 <= compute_units <= 4095:
        raise InputError(f"expected 1 to 4095, got {compute_units}", "compute units")
