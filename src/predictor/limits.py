"""What an answer has to keep to, whoever gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foretune.errors import InputError
from foretune.kernels.problem import Problem
from foretune.kernels.solver import Candidate
from foretune.predictor.default_candidate import fits


@dataclass(frozen=True)
class Limits:
    """What an answer has to keep to.

    Attributes
    ----------
    workspace : int or None
        Bytes.
    deterministic : bool
    risk : float
    """

    workspace: int | None
    deterministic: bool
    risk: float

    def allow(self, candidate: Candidate[Any], problem: Problem) -> bool:
        """Whether an applicable candidate keeps to them."""
        return fits(candidate, problem, self.workspace, self.deterministic)


def checked_limits(
    problem: Problem,
    budget_ms: float | None,
    workspace_limit: int | None,
    deterministic: bool,
    risk: float,
) -> Limits:
    """Check a caller's arguments.

    Raises
    ------
    InputError
        If one is of no use; the message names it.

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> problem = ConvProblem("F", 1, 8, (8, 8), 8, (3, 3))
    >>> checked_limits(problem, None, 4096, True, 0.05)
    Limits(workspace=4096, deterministic=True, risk=0.05)
    """
    if not hasattr(problem, "operation"):
        raise InputError(f"expected one, such as a ConvProblem, got {problem!r}", "problem")
    if budget_ms is not None and not (isinstance(budget_ms, int | float) and budget_ms > 0):
        raise InputError(f"expected milliseconds above 0, got {budget_ms!r}", "budget_ms")
    if workspace_limit is not None and not (
        isinstance(workspace_limit, int) and workspace_limit >= 0
    ):
        raise InputError(f"expected bytes, got {workspace_limit!r}", "workspace_limit")
    if not (isinstance(risk, int | float) and 0 <= risk <= 1):
        raise InputError(f"expected a share from 0 to 1, got {risk!r}", "risk")
    return Limits(workspace_limit, bool(deterministic), risk)
