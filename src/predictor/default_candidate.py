"""The candidate that is taken where nothing is known: constant time, nothing is run."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

from foretune.errors import InputError
from foretune.kernels.problem import Problem
from foretune.kernels.registry import naive_solver, solver
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import Candidate
from foretune.predictor.system_database import solver_order


def default_candidate(
    problem: Problem,
    device: DeviceProperties,
    *,
    workspace_limit: int | None = None,
    deterministic: bool = False,
    excluded: AbstractSet[str] = frozenset(),
) -> Candidate[Any]:
    """Give the default config of the first solver, in the order that loses least, that may be used.

    Parameters
    ----------
    problem : Problem
    device : DeviceProperties
    workspace_limit : int, optional
        Bytes that it may need.
    deterministic : bool, default False
        Leave out what adds atomically.
    excluded : set of str
        Keys of candidates that must not be used. Where nothing else is left, it is the naive
        solver all the same.

    Raises
    ------
    InputError
        If no solver computes such a problem.

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> device = DeviceProperties("cuda", "NVIDIA H200", "sm_90", 132, 32, 49152, 1024)
    >>> default_candidate(ConvProblem("F", 1, 64, (8, 8), 64, (1, 1)), device).solver.id
    'Conv1x1Gemm'
    """
    for name in solver_order(device.arch, problem.operation):
        known = solver(problem.operation, name)
        if known.why_not(problem, device) is not None:
            continue
        candidate = Candidate(known, known.default_config(problem, device))
        if candidate.key not in excluded and fits(
            candidate, problem, workspace_limit, deterministic
        ):
            return candidate
    naive = naive_solver(problem.operation)
    reason = naive.why_not(problem, device)
    if reason is not None:
        raise InputError(f"no solver can compute this: {reason}", "problem")
    return Candidate(naive, naive.default_config(problem, device))


def fits(
    candidate: Candidate[Any],
    problem: Problem,
    workspace_limit: int | None,
    deterministic: bool,
) -> bool:
    """Whether an applicable candidate keeps within limits."""
    known, config = candidate.solver, candidate.config
    if deterministic and known.adds_atomically(problem, config):
        return False
    return workspace_limit is None or known.workspace_size(problem, config) <= workspace_limit
