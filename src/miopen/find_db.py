"""MIOpen's find databases: which solvers were measured for a problem, and how fast they were."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from sys import intern

from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.archive import write_lines
from foretune.miopen.keys import parse_find_key
from foretune.miopen.reader import DatabaseReader

_KINDS = ("GEMM", "Direct", "FFT", "Winograd", "ImplicitGEMM")
#: Direction of each algorithm name that MIOpen accepts.
ALGORITHM_DIRECTIONS = {
    **{f"miopenConvolutionFwdAlgo{kind}": "F" for kind in _KINDS},
    **{f"miopenConvolutionBwdDataAlgo{kind}": "B" for kind in _KINDS},
    **{f"miopenConvolutionBwdWeightsAlgo{kind}": "W" for kind in _KINDS if kind != "FFT"},
    "miopenTransposeBwdDataAlgoGEMM": "B",
}
_ALGORITHMS = {
    wanted: {name: name for name, direction in ALGORITHM_DIRECTIONS.items() if direction == wanted}
    for wanted in "FBW"
}


@dataclass(frozen=True, slots=True)
class FindItem:
    """One solver's measurement.

    Parameters
    ----------
    solver : str
        MIOpen's solver id.
    time_ms : float
        Time of one run. Some shipped times are 0; they are kept.
    workspace : int
        Scratch memory in bytes.
    algorithm : str
        A name in `ALGORITHM_DIRECTIONS`.
    time_text : str, optional
        How the file writes the time, so that it is written back the same.

    Examples
    --------
    >>> str(FindItem("GemmFwdRest", 0.25, 1024, "miopenConvolutionFwdAlgoGEMM"))
    'GemmFwdRest:0.25,1024,miopenConvolutionFwdAlgoGEMM'
    """

    solver: str
    time_ms: float
    workspace: int
    algorithm: str
    time_text: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        text = self.time_text
        if not text or float(text) != self.time_ms:
            text = f"{self.time_ms:g}"
        return f"{self.solver}:{text},{self.workspace},{self.algorithm}"


@dataclass(frozen=True, slots=True)
class FindRecord:
    """What was found for one problem: at most a handful of solvers, the others unknown.

    Parameters
    ----------
    key : str
        The problem's key; `parse_find_key` reads it.
    items : tuple of FindItem
        In the file's order, which is not always that of the times.
    line : int, optional
        Line number in the file that it came from.

    Examples
    --------
    >>> key = "64-56-56-3x3-128-56-56-32-1x1-1x1-1x1-0-NCHW-FP16-F"
    >>> item = FindItem("GemmFwdRest", 0.25, 1024, "miopenConvolutionFwdAlgoGEMM")
    >>> FindRecord(key, (item,)).problem.out_channels
    128
    """

    key: str
    items: tuple[FindItem, ...]
    line: int = field(default=0, compare=False, repr=False)

    @property
    def problem(self) -> ConvProblem:
        """The problem, read from the key at each call."""
        return parse_find_key(self.key)

    def __str__(self) -> str:
        return f"{self.key}={';'.join(map(str, self.items))}"


class FindDbReader(DatabaseReader[FindRecord]):
    r"""The records of one find-db file, read as they are asked for.

    Attributes
    ----------
    path : str
        The file.
    lines, items, legacy_items : int
        Lines read, items read, and those among them in the format of MIOpen 1, so far.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "a.fdb.txt")
    ...     _ = path.write_text("nonsense\n")
    ...     reader = read_find_db(path)
    ...     list(reader), [issue.reason for issue in reader.issues]
    ([], ["no '='; the line is skipped"])
    """

    def __init__(
        self, path: str | os.PathLike[str], strict: bool = False, repeats: bool = False
    ) -> None:
        super().__init__(path, strict, repeats)
        self.legacy_items = 0

    def _read(self) -> Iterator[FindRecord]:
        for number, key, values in self._read_entries(_key_fault):
            direction = _direction(key)
            items = _read_good_items(values, direction)
            if items is None:
                items = self._read_items(values, direction, number)
            self.items += len(items)
            if items:
                yield FindRecord(key, items, number)
            else:
                self._log.report(number, "no item is left; the line is skipped")

    def _read_items(self, values: str, direction: str, number: int) -> tuple[FindItem, ...]:
        report = self._log.report
        items: dict[str, FindItem] = {}
        for text in values.split(";"):
            solver, colon, rest = text.partition(":")
            if not colon:
                report(number, f"item {text!r} has no ':'; it is skipped")
                continue
            legacy = solver in ALGORITHM_DIRECTIONS
            if legacy:
                algorithm = solver
                solver, _, rest = rest.partition(",")
            fields = rest.split(",")
            if len(fields) < 3:
                report(number, f"item {text!r} has fewer than 3 fields; it is skipped")
                continue
            if not legacy:
                algorithm = fields[2]
            if ALGORITHM_DIRECTIONS.get(algorithm) != direction:
                report(
                    number,
                    f"{solver}: {algorithm!r} is no algorithm of direction {direction}; "
                    "the item is skipped",
                )
                continue
            time_text = fields[0]
            try:
                time_ms, workspace = float(time_text), int(fields[1])
            except ValueError:
                time_ms = float("nan")
            if not isfinite(time_ms):
                report(
                    number,
                    f"{solver}: {time_text!r} ms, {fields[1]!r} bytes are no numbers; "
                    "the item is skipped",
                )
                continue
            if solver in items or not solver:
                report(
                    number,
                    f"solver {solver!r} was there before; the first is kept"
                    if solver
                    else f"item {text!r} names no solver; it is skipped",
                )
                continue
            items[solver] = FindItem(solver, time_ms, workspace, algorithm, time_text)
            self.legacy_items += legacy
        return tuple(items.values())


def _direction(key: str) -> str:
    return key.rpartition("-")[2][:1]


def _key_fault(key: str) -> str:
    return "" if _direction(key) in ("F", "B", "W") else "names no direction"


def _read_good_items(values: str, direction: str) -> tuple[FindItem, ...] | None:
    """Items of a line in the current format without a fault; None if there is a fault.

    All of a shipped database takes this way, which is several times faster than finding faults.
    """
    names = _ALGORITHMS[direction]
    items = []
    try:
        for text in values.split(";"):
            solver, rest = text.split(":")
            time_text, workspace, algorithm = rest.split(",")
            time_ms = float(time_text)
            # One string for each name, not one for each item.
            item = FindItem(intern(solver), time_ms, int(workspace), names[algorithm], time_text)
            if not solver or not isfinite(time_ms) or solver in ALGORITHM_DIRECTIONS:
                return None
            items.append(item)
    except (ValueError, KeyError):
        return None
    if len({item.solver for item in items}) < len(items):
        return None
    return tuple(items)


def read_find_db(path: str | os.PathLike[str], strict: bool = False) -> FindDbReader:
    """Read a find-db text file, current or legacy, plain or compressed.

    A line or item that is malformed costs itself and becomes an issue: a line without "=", a key
    or a solver that was there before (the first is kept, as in MIOpen), an item with too few
    fields or an algorithm of another direction. Keys are not taken apart.

    Parameters
    ----------
    path : path-like
        For example ``gfx90a68.HIP.fdb.txt`` of an installed ROCm, or that with ``.bz2``.
    strict : bool, default False
        Raise at the first issue.

    Returns
    -------
    FindDbReader
        Iterate over it once for the records; ``issues`` and the counts grow on the way.

    Raises
    ------
    InputError
        If the file is missing, a directory or empty; if strict, while iterating, at an issue.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> line = (
    ...     "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F="
    ...     "GemmFwd1x1_0_1:0.25,0,miopenConvolutionFwdAlgoGEMM"
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "a.fdb.txt")
    ...     _ = path.write_text(line)
    ...     [record.items[0].time_ms for record in read_find_db(path)]
    [0.25]
    """
    return FindDbReader(path, strict)


def write_find_db(path: str | os.PathLike[str], records: Iterable[FindRecord]) -> int:
    """Write records in the current format, in one step, compressed as the suffix says.

    Parameters
    ----------
    path : path-like
        Where to; an existing file is replaced when everything is written.
    records : iterable of FindRecord
        Written in this order.

    Returns
    -------
    int
        Records written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> key = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F"
    >>> item = FindItem("GemmFwd1x1_0_1", 0.25, 0, "miopenConvolutionFwdAlgoGEMM")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_find_db(pathlib.Path(folder, "a.fdb.txt.xz"), [FindRecord(key, (item,))])
    1
    """
    return write_lines(path, map(str, records))
