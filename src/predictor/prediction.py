"""The answer to "what should run?"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from foretune.kernels.conv.problem import ConvProblem


def _no_config() -> None:
    return None


@dataclass(frozen=True)
class Solution:
    """One candidate for a problem.

    Attributes
    ----------
    solver : str
    predicted_ms : float
        Predicted time.
    workspace : int or None
        Scratch memory in bytes; None where no exact formula is known.
    score : float
        Estimated probability of being within 1.10 of the best.
    find_config : callable
        Finds `config`, which is not worth the time for candidates that nobody looks at.
    """

    solver: str
    predicted_ms: float
    workspace: int | None
    score: float
    find_config: Callable[[], str | None] = field(default=_no_config, repr=False, compare=False)

    @cached_property
    def config(self) -> str | None:
        """Values of the solver's tuning parameters, as its database writes them; None if none."""
        return self.find_config()

    def __getstate__(self) -> dict[str, Any]:
        """Keep the config instead of the model that finds it."""
        return {**self.__dict__, "config": self.config, "find_config": _no_config}

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
