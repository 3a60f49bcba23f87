"""What every baseline shares: the interface, and the winner of a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, Self

from foretune.kernels.conv.problem import ConvProblem

#: One record of a find-db: milliseconds by solver, for the (at most four) solvers listed.
Times = Mapping[str, float]


class Baseline(Protocol):
    """Something that picks a solver for each problem.

    What learns has ``fit`` as well; AMD's nets come trained and only pick.
    """

    def pick(self, problems: Sequence[ConvProblem]) -> list[str | None]:
        """Name a solver for each problem, or None where there is no answer."""
        ...


class TrainableBaseline(Baseline, Protocol):
    """A baseline that learns from records."""

    def fit(self, problems: Sequence[ConvProblem], times: Sequence[Times]) -> Self:
        """Learn from records, and return itself."""
        ...


def winner(times: Times) -> str | None:
    """Solver that was measured fastest; None if nothing was measured.

    Times of zero and below are failed measurements and never win.

    Examples
    --------
    >>> winner({"GemmFwdRest": 0.0, "ConvDirectNaiveConvFwd": 2.0, "fft": 1.5})
    'fft'
    """
    measured = [(time, solver) for solver, time in times.items() if time > 0]
    return min(measured)[1] if measured else None
