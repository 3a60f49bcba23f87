"""Finding operations and their solvers by name; each is imported when it is asked for."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from foretune.errors import InputError
from foretune.kernels.problem import Problem, Tensor
from foretune.kernels.solver import Solver


@lru_cache(maxsize=64)
def solvers(operation: str) -> tuple[Solver[Any], ...]:
    """List the solvers of an operation, in the order of their ids.

    Each module of ``foretune.kernels.<operation>.solvers`` holds one, named SOLVER.

    Examples
    --------
    >>> "ConvNaive" in [solver.id for solver in solvers("conv")]
    True
    """
    package = import_module(f"foretune.kernels.{operation}.solvers")
    found = [
        import_module(f"{package.__name__}.{module.name}").SOLVER
        for module in iter_modules(package.__path__)
    ]
    return tuple(sorted(found, key=lambda solver: str(solver.id)))


def solver(operation: str, solver_id: str) -> Solver[Any]:
    """Find a solver by its id.

    Raises
    ------
    InputError
        If there is none; the message lists the known.
    """
    for known in solvers(operation):
        if known.id == solver_id:
            return known
    ids = ", ".join(known.id for known in solvers(operation))
    raise InputError(f"unknown solver {solver_id!r}; known are {ids}", "solver")


def naive_solver(operation: str) -> Solver[Any]:
    """Give the solver that is always applicable, the reference on a device."""
    return next(known for known in solvers(operation) if known.id.endswith("Naive"))


def tensors(problem: Problem) -> tuple[Tensor, ...]:
    """List the tensors of a problem of any operation.

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> [tensor.name for tensor in tensors(ConvProblem("F", 1, 3, (8, 8), 4, (3, 3)))]
    ['x', 'w', 'y']
    """
    module = import_module(f"foretune.kernels.{problem.operation}.arguments")
    described: tuple[Tensor, ...] = module.tensors(problem)
    return described
