"""What find tells: ranked candidates, and why others were left out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from foretune.kernels.problem import Problem
from foretune.kernels.problem_text import format_problem, parse_problem


@dataclass(frozen=True)
class FoundSolution:
    """A measured candidate.

    Parameters
    ----------
    solver : str
        Its id.
    config : str
        Text form, "" if the solver has none.
    time_ms : float
        Median.
    low_ms, high_ms : float
        Quartiles.
    samples : int
        Behind the median.
    workspace : int
        Bytes of scratch memory.
    is_tied : bool
        Whether it can't be told from the first.
    adds_atomically : bool
        Whether results may differ from run to run.
    """

    solver: str
    config: str
    time_ms: float
    low_ms: float
    high_ms: float
    samples: int
    workspace: int
    is_tied: bool = False
    adds_atomically: bool = False


@dataclass(frozen=True)
class LeftOut:
    """A solver or candidate that was not measured, and why."""

    candidate: str
    reason: str


@dataclass(frozen=True)
class Found:
    """Answer of find.

    Parameters
    ----------
    problem : Problem
    device : str
        Name of the device.
    solutions : tuple of FoundSolution
        The fastest first.
    left_out : tuple of LeftOut
    seconds : float
        That finding took.
    is_stored : bool
        Whether the answer came from the store.

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> solution = FoundSolution("ConvNaive", "THREADS=64", 1.5, 1.4, 1.6, 7, 0)
    >>> found = Found(ConvProblem("F", 1, 3, (8, 8), 4, (3, 3)), "a device", (solution,))
    >>> Found.from_dict(found.to_dict()) == found
    True
    """

    problem: Problem
    device: str
    solutions: tuple[FoundSolution, ...]
    left_out: tuple[LeftOut, ...] = ()
    seconds: float = 0.0
    is_stored: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "problem": format_problem(self.problem),
            "device": self.device,
            "seconds": self.seconds,
            "is_stored": self.is_stored,
            "solutions": [asdict(solution) for solution in self.solutions],
            "left_out": [asdict(left) for left in self.left_out],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Found:
        """Read what `to_dict` wrote."""
        return cls(
            parse_problem(values["problem"]),
            values["device"],
            tuple(FoundSolution(**solution) for solution in values["solutions"]),
            tuple(LeftOut(**left) for left in values["left_out"]),
            values["seconds"],
            values["is_stored"],
        )
