"""Merges the user databases of many processes or machines into one."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from foretune.errors import InputError
from foretune.miopen.archive import ARCHIVES, Issue
from foretune.miopen.find_db import FindDbReader, FindItem, FindRecord, read_find_db, write_find_db
from foretune.miopen.inspect import is_find_db
from foretune.miopen.keys import format_perf_key, parse_find_key
from foretune.miopen.names import parse_database_name
from foretune.miopen.perf_db import PerfDbReader, PerfRecord, write_perf_db

#: Suffix of a user's perf-db -> that of the find-db which MIOpen writes beside it.
_FIND_DB_OF = {".udb.txt": ".ufdb.txt", ".db.txt": ".HIP.fdb.txt"}
_RELEASE = re.compile(r"\.(\d+)_(\d+)_\d+_[^.]*\.uf?db\.txt", re.ASCII)


EntryT = TypeVar("EntryT")


@dataclass(frozen=True)
class MergeReport:
    """What a merge came to.

    Attributes
    ----------
    out : str
        The file that was written.
    files : int
        Files merged, each counted once.
    kind : {'find-db', 'perf-db'}
    problems, items : int
        Records and entries written.
    conflicts : int
        Entries of one problem and solver that differed between the files, or within one.
    undecided : int
        Those among them that no measured time decided.
    issues : tuple of Issue
        What could not be read, with file and line; it is not in the result.
    """

    out: str
    files: int
    kind: str
    problems: int
    items: int
    conflicts: int
    undecided: int
    issues: tuple[Issue, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**vars(self), "issues": [dict(vars(issue)) for issue in self.issues]}


def merge_databases(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    strict: bool = False,
) -> MergeReport:
    r"""Write every problem and every solver of several databases into one.

    Of a find-db's entries for one problem and solver the one with the smallest time above zero is
    kept (of equal ones the smaller workspace, then the first by text); of a perf-db's the one that
    was measured faster in the find-db beside its file, where there are such, else the first by
    text. A key that stands twice in one file is merged like one in two files; of a solver that
    stands twice in one line the first counts, as for MIOpen, and the other is an issue. The result
    doesn't depend on the order of the files, nor on how often one is named; it is sorted by key, a
    find-db's solvers by time and a perf-db's by name.

    Parameters
    ----------
    paths : sequence of path-like
        Find-dbs, or perf-dbs (text or SQLite), of one device and one release.
    out : path-like
        Where to; replaced in one step when everything is read, so it may be one of ``paths``.
    strict : bool, default False
        Stop at the first line that can't be read; nothing is written then.

    Returns
    -------
    MergeReport

    Raises
    ------
    InputError
        If a file can't be used, or the files are of several kinds, devices or releases.

    Examples
    --------
    >>> import tempfile
    >>> start = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F=GemmFwd1x1_0_1:"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = [Path(folder, name) for name in ("a.ufdb.txt", "b.ufdb.txt")]
    ...     for path, time in zip(paths, ("0.3", "0.25")):
    ...         _ = path.write_text(f"{start}{time},0,miopenConvolutionFwdAlgoGEMM\n")
    ...     report = merge_databases(paths, Path(folder, "all.ufdb.txt"))
    ...     Path(folder, "all.ufdb.txt").read_text()[len(start) :].partition(",")[0]
    '0.25'
    """
    if not paths:
        raise InputError("name the databases to merge")
    # One file named twice would count its entries as conflicts with themselves.
    named = list(dict.fromkeys(os.fspath(path) for path in paths))
    _check_names([*named, os.fspath(out)])
    empty = [path for path in named if Path(path).is_file() and not Path(path).stat().st_size]
    files = [path for path in named if path not in empty]
    issues = [Issue(path, 0, "the file is empty") for path in empty]
    if not files or (strict and issues):
        raise InputError(issues[0].reason, issues[0].file)
    kinds = {path: "find-db" if is_find_db(path) else "perf-db" for path in files}
    kind = kinds[files[0]]
    for path, found in kinds.items():
        if found != kind:
            raise InputError(f"this is a {found}, but {files[0]} is a {kind}", path)
    merge = _merge_find_dbs if kind == "find-db" else _merge_perf_dbs
    return merge(files, os.fspath(out), strict, issues)


class _Merged(Generic[EntryT]):
    """The best entry of each problem and solver so far."""

    def __init__(self, rank: Callable[[EntryT], tuple[Any, ...]]) -> None:
        self.rank = rank
        self.entries: dict[str, dict[str, EntryT]] = {}
        self.conflicts: set[tuple[str, str]] = set()
        self.undecided: set[tuple[str, str]] = set()

    def add(self, key: str, solver: str, entry: EntryT) -> None:
        known = self.entries.setdefault(key, {})
        before = known.setdefault(solver, entry)
        old, new = self.rank(before), self.rank(entry)
        if old == new:
            return
        self.conflicts.add((key, solver))
        # A rank starts with what was measured.
        if old[:2] == new[:2]:
            self.undecided.add((key, solver))
        elif new < old:
            self.undecided.discard((key, solver))
        if new < old:
            known[solver] = entry


def _merge_find_dbs(
    paths: Sequence[str], out: str, strict: bool, issues: list[Issue]
) -> MergeReport:
    merged = _Merged(_rank_item)
    for path in paths:
        reader = FindDbReader(path, strict, repeats=True)
        for record in reader:
            for item in record.items:
                merged.add(record.key, item.solver, item)
        issues += reader.issues
    records = [
        FindRecord(
            key, tuple(sorted(items.values(), key=lambda item: (*_rank_item(item), item.solver)))
        )
        for key, items in sorted(merged.entries.items())
    ]
    _check_result(records, issues)
    write_find_db(out, records)
    return _report(out, len(paths), "find-db", merged, issues)


def _place(item: FindItem) -> tuple[Any, ...]:
    return (*_rank_item(item), item.solver)


def _rank_item(item: FindItem) -> tuple[Any, ...]:
    measured = item.time_ms > 0
    return (
        not measured,
        abs(item.time_ms),
        item.workspace,
        item.algorithm,
        # Of two ways to write one number, for a result that doesn't depend on the order.
        item.time_text,
    )


def _merge_perf_dbs(
    paths: Sequence[str], out: str, strict: bool, issues: list[Issue]
) -> MergeReport:
    merged = _Merged(_rank_config)
    for path in paths:
        times = _times_beside(path)
        reader = PerfDbReader(path, strict, repeats=True)
        for record in reader:
            for solver, params in record.params.items():
                time_ms = times.get(record.key, {}).get(solver)
                merged.add(record.key, solver, _Config(params, time_ms))
        issues += reader.issues
    records = [
        PerfRecord(key, {solver: config.params for solver, config in sorted(configs.items())})
        for key, configs in sorted(merged.entries.items())
    ]
    _check_result(records, issues)
    write_perf_db(out, records)
    return _report(out, len(paths), "perf-db", merged, issues)


@dataclass(frozen=True, slots=True)
class _Config:
    """Tuning parameters, with the solver's time in the find-db beside their file."""

    params: str
    time_ms: float | None


def _rank_config(config: _Config) -> tuple[Any, ...]:
    return config.time_ms is None, config.time_ms or 0.0, config.params


def _times_beside(path: str) -> Mapping[str, Mapping[str, float]]:
    """Read the times of the find-db beside a perf-db, by perf-db key and solver."""
    find_db = _find_db_beside(Path(path))
    times: dict[str, dict[str, float]] = {}
    if find_db is None:
        return times
    for record in read_find_db(find_db):
        try:
            key = format_perf_key(parse_find_key(record.key))
        except InputError:
            continue
        # Several sizes of x share a perf-db key with B and W.
        known = times.setdefault(key, {})
        for item in record.items:
            if item.time_ms > 0:
                known[item.solver] = min(item.time_ms, known.get(item.solver, item.time_ms))
    return times


def _find_db_beside(path: Path) -> Path | None:
    name = path.stem if path.suffix in ARCHIVES else path.name
    for suffix, other in _FIND_DB_OF.items():
        if name.endswith(suffix):
            find_db = path.with_name(name.removesuffix(suffix) + other)
            if find_db.is_file() and find_db.stat().st_size:
                return find_db
    return None


def _check_names(paths: Sequence[str]) -> None:
    """Refuse files whose names are those of several devices or releases."""
    devices: dict[tuple[str, int], str] = {}
    releases: dict[str, str] = {}
    for path in paths:
        release = _RELEASE.search(Path(path).name)
        if release:
            releases.setdefault(f"{release[1]}.{release[2]}", path)
        name = parse_database_name(Path(path).name)
        if name:
            devices.setdefault((name.arch, name.compute_units), path)
    if len(devices) > 1:
        (one, first), (two, second) = list(devices.items())[:2]
        raise InputError(
            f"its name says {two[0]} with {two[1]} compute units, but that of {first} "
            f"{one[0]} with {one[1]}; times of several devices can't be merged",
            second,
        )
    if len(releases) > 1:
        (old, first), (new, second) = list(releases.items())[:2]
        raise InputError(
            f"its name says MIOpen {new}, but that of {first} {old}; one may ask for more "
            "workspace than the other noted, and a call of it fails then",
            second,
        )


def _check_result(records: Sequence[object], issues: Sequence[Issue]) -> None:
    if not records:
        why = f"; the first was {issues[0]}" if issues else ""
        raise InputError(f"no line of these databases can be used{why}")


def _report(
    out: str, files: int, kind: str, merged: _Merged[Any], issues: Sequence[Issue]
) -> MergeReport:
    return MergeReport(
        out,
        files,
        kind,
        len(merged.entries),
        sum(map(len, merged.entries.values())),
        len(merged.conflicts),
        len(merged.undecided),
        tuple(issues),
    )
