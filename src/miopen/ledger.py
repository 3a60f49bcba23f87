"""What foretune wrote into a user database, so that it can be told from what tuning wrote.

MIOpen copies and rewrites its files, so no mark in them would last. The ledger stands beside the
database and holds a hash of each entry as it was written; an entry that hashes to something else
now isn't foretune's any more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from foretune.errors import InputError
from foretune.miopen.archive import write_lines

_TITLE = "# foretune ledger 1: entries of the database beside it that foretune wrote"
_HASH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """One solver of one problem, in either kind of database.

    Parameters
    ----------
    key : str
        The problem.
    id : str
        The solver.
    values : str
        What the database says of it: time, workspace and algorithm, or parameters.

    Examples
    --------
    >>> str(Entry("2x64x...xF", "ConvAsm3x3U", "0,8,7"))
    '2x64x...xF=ConvAsm3x3U:0,8,7'
    """

    key: str
    id: str
    values: str

    def __str__(self) -> str:
        return f"{self.key}={self.id}:{self.values}"


class Ledger:
    """The entries of one database that foretune wrote.

    Parameters
    ----------
    lines : iterable of str, optional
        Of a ledger's file. A line that is none costs itself: then the entry counts as the user's.

    Examples
    --------
    >>> ledger = Ledger()
    >>> ledger.add(Entry("key", "fft", "0.5,0,miopenConvolutionFwdAlgoFFT"))
    >>> Entry("key", "fft", "0.5,0,miopenConvolutionFwdAlgoFFT") in ledger
    True
    >>> Entry("key", "fft", "0.4,0,miopenConvolutionFwdAlgoFFT") in ledger
    False
    """

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self._lines = {line for line in lines if line.count(" ") == 2}

    def __contains__(self, entry: Entry) -> bool:
        return _line(entry) in self._lines

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, entry: Entry) -> None:
        """Remember an entry."""
        self._lines.add(_line(entry))

    def keep(self, entries: Iterable[Entry]) -> None:
        """Forget all but these."""
        self._lines.intersection_update(map(_line, entries))

    def lines(self) -> list[str]:
        """Give the lines of its file: hash, key and solver."""
        return [_TITLE, *sorted(self._lines)]


def ledger_path(database: str | os.PathLike[str]) -> Path:
    """Where the ledger of a database is.

    Examples
    --------
    >>> ledger_path("gfx90a68.HIP.3_4_0_.ufdb.txt").name
    'gfx90a68.HIP.3_4_0_.ufdb.txt.foretune'
    """
    return Path(f"{os.fspath(database)}.foretune")


def read_ledger(database: str | os.PathLike[str]) -> Ledger:
    """Read the ledger of a database; an empty one if there is none.

    Raises
    ------
    InputError
        If the file is no ledger, or one of a newer foretune.
    """
    path = ledger_path(database)
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return Ledger()
    except OSError as error:
        raise InputError(f"the ledger can't be read ({error.strerror})", str(path)) from None
    if lines[:1] != [_TITLE]:
        raise InputError(
            "this is no ledger that this foretune knows, so it can't tell its own entries from "
            "yours; delete it, and all entries count as yours",
            str(path),
        )
    return Ledger(lines)


def write_ledger(database: str | os.PathLike[str], ledger: Ledger) -> None:
    """Write the ledger of a database in one step; an empty one is removed."""
    path = ledger_path(database)
    if len(ledger):
        write_lines(path, ledger.lines())
    else:
        path.unlink(missing_ok=True)


def _line(entry: Entry) -> str:
    values = entry.values.encode(errors="surrogateescape")
    return f"{blake2b(values, digest_size=_HASH_BYTES).hexdigest()} {entry.key} {entry.id}"
