"""Which solvers can plausibly run a problem, learnt from what a database lists."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import Self

from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.baselines.records import Times

LEAST_RECORDS = 20


class RuleMask:
    """Drops a solver where the training data had many such problems and never listed it.

    Databases list at most four solvers a problem, so one problem says little; a whole cell of
    alike problems that never lists a solver says that it isn't applicable there, or hopeless.

    Parameters
    ----------
    least_records : int, default 20
        Smaller cells drop nothing.

    Attributes
    ----------
    solvers_ : dict
        Listings of each solver, by (direction, dimensions, layout, type).

    Examples
    --------
    >>> problem = ConvProblem("F", 8, 64, (56, 56), 64, (1, 1))
    >>> mask = RuleMask(least_records=1).fit([problem], [{"GemmFwd1x1_0_1": 0.1}])
    >>> sorted(mask.allowed(problem))
    ['GemmFwd1x1_0_1']
    """

    def __init__(self, least_records: int = LEAST_RECORDS) -> None:
        self.least_records = least_records
        self.solvers_: dict[Hashable, Counter[str]] = {}
        self._cells: dict[Hashable, set[str]] = {}
        self._records: Counter[Hashable] = Counter()

    def fit(self, problems: Sequence[ConvProblem], times: Sequence[Times]) -> Self:
        """Learn which solvers are listed where.

        Parameters
        ----------
        problems : sequence of ConvProblem
            Problems of the training records.
        times : sequence of mapping
            Milliseconds by solver for each of them.
        """
        cells: defaultdict[Hashable, set[str]] = defaultdict(set)
        solvers: defaultdict[Hashable, Counter[str]] = defaultdict(Counter)
        for problem, record in zip(problems, times, strict=True):
            cell = rule_cell(problem)
            self._records[cell] += 1
            cells[cell].update(record)
            solvers[kind(problem)].update(record.keys())
        self._cells, self.solvers_ = dict(cells), dict(solvers)
        return self

    def allowed(self, problem: ConvProblem) -> frozenset[str]:
        """Solvers not ruled out for a problem; none if the data never had its kind."""
        known = self.solvers_.get(kind(problem), Counter[str]())
        cell = rule_cell(problem)
        if self._records[cell] < self.least_records:
            return frozenset(known)
        return frozenset(self._cells[cell])


def kind(problem: ConvProblem) -> tuple[str, int, str, str]:
    """Direction, dimensions, layout and type.

    Examples
    --------
    >>> kind(ConvProblem("B", 8, 64, (56, 56), 64, (1, 1), dtype="FP16"))
    ('B', 2, 'NCHW', 'FP16')
    """
    return problem.direction, problem.ndim, problem.layout, problem.dtype


def group_kind(problem: ConvProblem) -> str:
    """Whether the groups are one, each a single channel, or between.

    Examples
    --------
    >>> group_kind(ConvProblem("F", 8, 64, (56, 56), 64, (3, 3), groups=64))
    'depthwise'
    """
    if problem.groups == 1:
        return "one"
    return "depthwise" if problem.groups == problem.in_channels else "grouped"


def rule_cell(problem: ConvProblem) -> Hashable:
    """Cell of alike problems in which the same solvers can run.

    Examples
    --------
    >>> problem = ConvProblem("F", 8, 64, (56, 56), 64, (1, 1))
    >>> rule_cell(problem) == rule_cell(ConvProblem("F", 1, 32, (7, 7), 16, (1, 1)))
    True
    """
    return (
        *kind(problem),
        set(problem.filter_size) == {1},
        set(problem.stride) == {1},
        set(problem.padding) == {0},
        set(problem.dilation) == {1},
        group_kind(problem),
        set(problem.filter_size) == {3},
    )
