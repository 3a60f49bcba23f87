"""The pick "always the usual winner"."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import Self

from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.baselines.records import Times, winner
from foretune.miopen.baselines.rule_mask import RuleMask, kind


class UsualWinner:
    """Picks what wins most often among problems of this direction, dimensions, layout and type.

    Solvers that the rule mask drops for a problem are passed over.

    Attributes
    ----------
    wins_ : dict
        How often each solver won, by (direction, dimensions, layout, type).

    Examples
    --------
    >>> problem = ConvProblem("F", 8, 64, (56, 56), 64, (1, 1))
    >>> times = {"GemmFwd1x1_0_1": 0.1, "ConvDirectNaiveConvFwd": 0.9}
    >>> UsualWinner().fit([problem], [times]).pick([problem])
    ['GemmFwd1x1_0_1']
    """

    def __init__(self) -> None:
        self.wins_: dict[Hashable, Counter[str]] = {}
        self._mask = RuleMask()

    def fit(self, problems: Sequence[ConvProblem], times: Sequence[Times]) -> Self:
        """Count the winners.

        Parameters
        ----------
        problems : sequence of ConvProblem
            Problems of the training records.
        times : sequence of mapping
            Milliseconds by solver for each of them.
        """
        self._mask = RuleMask().fit(problems, times)
        wins: defaultdict[Hashable, Counter[str]] = defaultdict(Counter)
        for problem, record in zip(problems, times, strict=True):
            if best := winner(record):
                wins[kind(problem)][best] += 1
        self.wins_ = dict(wins)
        return self

    def pick(self, problems: Sequence[ConvProblem]) -> list[str | None]:
        """Name a solver for each problem; None where training had no problem of the kind."""
        return [self._pick(problem) for problem in problems]

    def _pick(self, problem: ConvProblem) -> str | None:
        wins = self.wins_.get(kind(problem), Counter[str]())
        allowed = self._mask.allowed(problem)
        return next((solver for solver, _ in wins.most_common() if solver in allowed), None)
