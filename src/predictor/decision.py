"""What the ladder decided for a problem, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foretune.kernels.problem import Problem
from foretune.kernels.problem_text import format_problem

#: Who can answer, in the order in which they are asked.
RUNGS = (
    "process cache",
    "user database",
    "system database",
    "model",
    "measured top",
    "find",
    "fallback",
)


@dataclass(frozen=True)
class Considered:
    """A candidate that a decision looked at.

    Attributes
    ----------
    solver, config : str
    predicted_ms : float or None
        By the model; None if it wasn't asked or doesn't know it.
    measured_ms : float or None
        On this device, or by a database; None if it was not.
    note : str
        Why it is out, such as how it crashed; "" if it isn't.
    """

    solver: str
    config: str
    predicted_ms: float | None = None
    measured_ms: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Decision:
    """Answer of the ladder.

    Attributes
    ----------
    problem : Problem
    solver : str
        Id of the solver that shall compute it.
    config : str
        Text form of its config.
    rung : str
        Who answered, one of `RUNGS`.
    reason : str
        Why that one.
    considered : tuple of Considered
        The best first; what was left out comes last.

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> problem = ConvProblem("F", 1, 8, (8, 8), 8, (3, 3))
    >>> decision = Decision(problem, "ConvNaive", "THREADS=64", "fallback", "no model")
    >>> decision.to_dict()["rung"]
    'fallback'
    """

    problem: Problem
    solver: str
    config: str
    rung: str
    reason: str
    considered: tuple[Considered, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "problem": format_problem(self.problem),
            "solver": self.solver,
            "config": self.config,
            "rung": self.rung,
            "reason": self.reason,
            "considered": [vars(one) for one in self.considered],
        }
