"""The pick of the most alike problem that was measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.spatial import KDTree

from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.baselines.records import Times, winner
from foretune.miopen.baselines.rule_mask import RuleMask, kind

NEIGHBOURS = 8


@dataclass(frozen=True)
class _Class:
    """Training problems among which neighbours are looked for."""

    tree: KDTree
    scale: npt.NDArray[np.float64]
    winners: list[str]


class NearestNeighbour:
    """Picks the winner of the nearest training problem.

    Nearest is by the logarithms of all sizes, each divided by its standard deviation, among
    problems of the same direction, dimensions, layout, type and filter class (1x1, 3x3 or other).
    A neighbour whose winner the rule mask drops for the problem is passed over.

    Parameters
    ----------
    neighbours : int, default 8
        How many neighbours are looked at before giving up.

    Examples
    --------
    >>> small = ConvProblem("F", 1, 64, (7, 7), 64, (1, 1))
    >>> large = ConvProblem("F", 64, 512, (56, 56), 512, (1, 1))
    >>> times = [{"ConvDirectNaiveConvFwd": 0.01}, {"GemmFwd1x1_0_1": 0.5}]
    >>> nearest = NearestNeighbour().fit([small, large], times)
    >>> nearest.pick([ConvProblem("F", 32, 512, (28, 28), 256, (1, 1))])
    ['GemmFwd1x1_0_1']
    """

    def __init__(self, neighbours: int = NEIGHBOURS) -> None:
        self.neighbours = neighbours
        self._mask = RuleMask()
        self._classes: dict[Hashable, _Class] = {}

    def fit(self, problems: Sequence[ConvProblem], times: Sequence[Times]) -> Self:
        """Remember the training problems.

        Parameters
        ----------
        problems : sequence of ConvProblem
            Problems of the training records.
        times : sequence of mapping
            Milliseconds by solver for each of them.
        """
        self._mask = RuleMask().fit(problems, times)
        members: defaultdict[Hashable, list[tuple[ConvProblem, str]]] = defaultdict(list)
        for problem, record in zip(problems, times, strict=True):
            if best := winner(record):
                members[_filter_class(problem)].append((problem, best))
        self._classes = {}
        for name, rows in members.items():
            points = _log_sizes([problem for problem, _ in rows])
            spread = points.std(axis=0)
            scale = np.where(spread > 0, spread, 1.0)
            self._classes[name] = _Class(KDTree(points / scale), scale, [best for _, best in rows])
        return self

    def pick(self, problems: Sequence[ConvProblem]) -> list[str | None]:
        """Name a solver for each problem; None where training had nothing alike."""
        picks: list[str | None] = [None] * len(problems)
        asked: defaultdict[Hashable, list[int]] = defaultdict(list)
        for index, problem in enumerate(problems):
            asked[_filter_class(problem)].append(index)
        for name, indices in asked.items():
            known = self._classes.get(name)
            if known is None:
                continue
            points = _log_sizes([problems[index] for index in indices]) / known.scale
            count = min(self.neighbours, len(known.winners))
            # A list of ranks, because a plain count of 1 would drop that axis of the answer.
            _, nearest = known.tree.query(points, k=list(range(1, count + 1)))
            for index, row in zip(indices, np.asarray(nearest).tolist(), strict=True):
                allowed = self._mask.allowed(problems[index])
                best = (known.winners[neighbour] for neighbour in row)
                picks[index] = next((solver for solver in best if solver in allowed), None)
        return picks


def _filter_class(problem: ConvProblem) -> Hashable:
    sides = set(problem.filter_size)
    return *kind(problem), 1 if sides == {1} else 3 if sides == {3} else 0


def _log_sizes(problems: Sequence[ConvProblem]) -> npt.NDArray[np.float64]:
    rows = [
        (
            problem.batch,
            problem.in_channels,
            problem.out_channels,
            problem.groups,
            *problem.in_size,
            *problem.out_size,
            *problem.filter_size,
            *problem.stride,
            *problem.dilation,
            *(pad + 1 for pad in problem.padding),
        )
        for problem in problems
    ]
    return np.log2(np.array(rows, np.float64))
