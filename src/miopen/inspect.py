"""What a database holds, counted, with the entries that look wrong."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem, conv_out_size
from foretune.miopen.archive import ARCHIVES, Issue, IssueLog, open_archive, read_lines
from foretune.miopen.find_db import FindRecord, read_find_db
from foretune.miopen.keys import parse_find_key, parse_perf_key
from foretune.miopen.perf_db import read_perf_db

#: Workspaces above this many bytes are more than any device has.
MAX_WORKSPACE = 2**40
#: Prefix of the solvers that always work and are rarely fast.
NAIVE_PREFIX = "ConvDirectNaiveConv"


@dataclass(frozen=True)
class SuspiciousEntry:
    """An entry that is well formed but looks wrong.

    Parameters
    ----------
    line : int
        Line number, or id of the row.
    key : str
        The problem's key.
    reason : str
        What looks wrong.
    """

    line: int
    key: str
    reason: str


@dataclass(frozen=True)
class DatabaseSummary:
    """What `describe_database` counted.

    Parameters
    ----------
    path : str
        The file.
    kind : {'find-db', 'perf-db'}
        What it holds.
    storage : {'text', 'sqlite'}
        How.
    lines, problems, items, legacy_items : int
        Lines or rows read, problems with a readable key, their solvers' entries, and those among
        them in the format of MIOpen 1.
    grouped : int
        Problems of more than one group.
    by_direction, by_type, by_layout, by_dimensions, by_solver, winners : dict of str to int
        Problems by direction, data type, layout, "2-D" or "3-D"; entries by solver; and problems
        by the solver with the least time above zero (find-db only), most frequent first.
    items_per_problem : dict of int to int
        Problems by how many solvers they list.
    suspicious_counts : dict of str to int
        How often each reason was found.
    suspicious : tuple of SuspiciousEntry
        The first of each reason, at most ``examples`` of them.
    issues : tuple of Issue
        What could not be read.
    """

    path: str
    kind: str
    storage: str
    lines: int = 0
    problems: int = 0
    items: int = 0
    legacy_items: int = 0
    grouped: int = 0
    by_direction: dict[str, int] = field(default_factory=dict)
    by_type: dict[str, int] = field(default_factory=dict)
    by_layout: dict[str, int] = field(default_factory=dict)
    by_dimensions: dict[str, int] = field(default_factory=dict)
    by_solver: dict[str, int] = field(default_factory=dict)
    winners: dict[str, int] = field(default_factory=dict)
    items_per_problem: dict[int, int] = field(default_factory=dict)
    suspicious_counts: dict[str, int] = field(default_factory=dict)
    suspicious: tuple[SuspiciousEntry, ...] = ()
    issues: tuple[Issue, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON.

        Examples
        --------
        >>> DatabaseSummary("a.fdb.txt", "find-db", "text").to_dict()["problems"]
        0
        """
        values: dict[str, object] = dict(vars(self))
        values["items_per_problem"] = {str(n): m for n, m in self.items_per_problem.items()}
        values["suspicious"] = [dict(vars(entry)) for entry in self.suspicious]
        values["issues"] = [dict(vars(issue)) for issue in self.issues]
        return values


def describe_database(
    path: str | os.PathLike[str], strict: bool = False, examples: int = 10
) -> DatabaseSummary:
    r"""Count what a find-db or a perf-db holds.

    Parameters
    ----------
    path : path-like
        Find-db text (current or legacy), perf-db text or SQLite, plain or compressed. Told apart
        by name, and by content where the name says nothing.
    strict : bool, default False
        Raise at the first issue.
    examples : int, default 10
        Suspicious entries to keep of each reason.

    Returns
    -------
    DatabaseSummary
        Counts, suspicious entries and issues.

    Raises
    ------
    InputError
        If the file can't be used at all; if strict, at the first issue.

    Examples
    --------
    >>> import tempfile
    >>> line = (
    ...     "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F="
    ...     "GemmFwd1x1_0_1:0,0,miopenConvolutionFwdAlgoGEMM"
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.fdb.txt")
    ...     _ = path.write_text(line + "\nnonsense\n")
    ...     summary = describe_database(path)
    >>> summary.problems, summary.suspicious_counts, len(summary.issues)
    (1, {'time is not above zero': 1}, 1)
    """
    tally = _Tally(examples)
    if is_find_db(path):
        reader = read_find_db(path, strict)
        for record in reader:
            try:
                problem = parse_find_key(record.key)
            except InputError as error:
                reader.report(record, f"{error}; the line is skipped")
                continue
            tally.problem(problem, record.key, record.line, [item.solver for item in record.items])
            tally.find_record(record)
        kind, storage, legacy = "find-db", "text", reader.legacy_items
        lines, issues = reader.lines, reader.issues
    else:
        perf = read_perf_db(path, strict)
        for row in perf:
            try:
                problem = parse_perf_key(row.key)
            except InputError as error:
                perf.report(row, f"{error}; the line is skipped")
                continue
            tally.problem(problem, row.key, row.line, list(row.params))
        kind, storage, legacy = "perf-db", "sqlite" if perf.is_sqlite else "text", 0
        lines, issues = perf.lines, perf.issues
    return DatabaseSummary(
        os.fspath(path),
        kind,
        storage,
        lines,
        sum(tally.by_direction.values()),
        sum(tally.by_solver.values()),
        legacy,
        tally.grouped,
        dict(tally.by_direction.most_common()),
        dict(tally.by_type.most_common()),
        dict(tally.by_layout.most_common()),
        dict(tally.by_dimensions.most_common()),
        dict(tally.by_solver.most_common()),
        dict(tally.winners.most_common()),
        dict(sorted(tally.items_per_problem.items())),
        dict(tally.suspicious_counts.most_common()),
        tuple(tally.suspicious),
        tuple(issues),
    )


class _Tally:
    def __init__(self, examples: int) -> None:
        self.examples = examples
        self.grouped = 0
        self.by_direction: Counter[str] = Counter()
        self.by_type: Counter[str] = Counter()
        self.by_layout: Counter[str] = Counter()
        self.by_dimensions: Counter[str] = Counter()
        self.by_solver: Counter[str] = Counter()
        self.winners: Counter[str] = Counter()
        self.items_per_problem: Counter[int] = Counter()
        self.suspicious_counts: Counter[str] = Counter()
        self.suspicious: list[SuspiciousEntry] = []

    def problem(self, problem: ConvProblem, key: str, line: int, solvers: list[str]) -> None:
        self.grouped += problem.groups > 1
        self.by_direction[problem.direction] += 1
        self.by_type[_joined(problem.dtype, problem.weight_dtype, problem.out_dtype)] += 1
        self.by_layout[_joined(problem.layout, problem.weight_layout, problem.out_layout)] += 1
        self.by_dimensions[f"{problem.ndim}-D"] += 1
        self.by_solver.update(solvers)
        self.items_per_problem[len(solvers)] += 1
        # Such an output has size 1, so the formula is asked only there.
        if 1 in problem.out_size and problem.out_size != conv_out_size(
            problem.in_size, problem.filter_size, problem.stride, problem.padding, problem.dilation
        ):
            self.suspect(line, key, "filter is larger than the padded input")

    def find_record(self, record: FindRecord) -> None:
        # A time that isn't above zero was not measured right, so it doesn't win.
        measured = [item for item in record.items if item.time_ms > 0] or record.items
        best = min(measured, key=attrgetter("time_ms"))
        self.winners[best.solver] += 1
        if best.solver.startswith(NAIVE_PREFIX) and len(record.items) > 1:
            self.suspect(record.line, record.key, "naive solver won where others ran")
        for item in record.items:
            if item.time_ms <= 0:
                self.suspect(record.line, record.key, "time is not above zero", item.solver)
            if not 0 <= item.workspace <= MAX_WORKSPACE:
                self.suspect(record.line, record.key, "workspace is impossible", item.solver)

    def suspect(self, line: int, key: str, reason: str, solver: str = "") -> None:
        self.suspicious_counts[reason] += 1
        if self.suspicious_counts[reason] <= self.examples:
            self.suspicious.append(
                SuspiciousEntry(line, key, f"{solver}: {reason}" if solver else reason)
            )


def is_find_db(path: str | os.PathLike[str]) -> bool:
    """Whether a database file holds find results; else it is a perf-db.

    Told by its name, and by its content where the name says nothing.

    Raises
    ------
    InputError
        If the content must tell and can't be read: there is no such file, or it is a pipe.

    Examples
    --------
    >>> is_find_db("gfx942130.HIP.fdb.txt.bz2"), is_find_db("gfx90a68.db")
    (True, False)
    """
    name = Path(path).name
    if Path(name).suffix in ARCHIVES:
        name = Path(name).stem
    if name.endswith("fdb.txt"):
        return True
    if name.endswith((".db", ".udb", "db.txt")):
        return False
    if Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):
        raise InputError("this is a pipe or a device, expected a file", str(path))
    if read_perf_db(path).is_sqlite:
        return False
    lines = read_lines(open_archive(path), IssueLog(os.fspath(path)))
    key = next((line.partition("=")[0] for _, line in lines if "=" in line), "")
    return "-" in key


def _joined(*names: str) -> str:
    return names[0] if len(set(names)) == 1 else "-".join(names)
