"""The answer to "what should run?"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foretune.kernels.conv.problem import ConvProblem


@dataclass(frozen=True, slots=True)
class Solution:
    """One candidate for a problem.

    Attributes
    ----------
    solver : str
    config : str or None
        Values of the solver's tuning parameters, as its database writes them.
    predicted_ms : float
        Predicted time.
    workspace : int or None
        Scratch memory in bytes; None where no exact formula is known.
    score : float
        Estimated probability of being within 1.10 of the best.
    """

    solver: str
    config: str | None
    predicted_ms: float
    workspace: int | None
    score: float

    def to_dict(self) -> dict[str, Any]:
        """Give the fields for JSON."""
        return {
            "solver": self.solver,
            "config": self.config,
            "predicted_ms": self.predicted_ms,
            "workspace": self.workspace,
            "score": self.score,
        }


@dataclass(frozen=True, slots=True)
class Prediction:
    """Candidates for a problem on a device, the best first.

    Attributes
    ----------
    problem : ConvProblem
    arch : str
    compute_units : int or None
        None where neither the caller nor the arch says it.
    accepted : bool
        Whether the first solution may be used without measuring.
    risk : float
        What "accepted" promises: the pick is slower than 1.10 times the best, or no candidate of
        this problem at all, in at most this share of accepted answers.
    reason : str
        Why it is accepted, or why not.
    solutions : tuple of Solution
    """

    problem: ConvProblem
    arch: str
    compute_units: int | None
    accepted: bool
    risk: float
    reason: str
    solutions: tuple[Solution, ...]
