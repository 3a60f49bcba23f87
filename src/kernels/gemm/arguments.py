"""Matrix multiplications as kernels see them."""

from __future__ import annotations

from foretune.kernels.gemm.problem import DTYPES, GemmProblem
from foretune.kernels.problem import Tensor


def tensors(problem: GemmProblem) -> tuple[Tensor, ...]:
    """List the tensors a, b and c, each with the batch first.

    Examples
    --------
    >>> [(each.name, each.shape, each.strides) for each in tensors(GemmProblem(2, 3, 4, 5, "NT"))]
    [('a', (5, 2, 4), (8, 4, 1)), ('b', (5, 4, 3), (12, 1, 4)), ('c', (5, 2, 3), (6, 3, 1))]
    """
    m, n, k, batch = problem.m, problem.n, problem.k, problem.batch
    transposes = (*problem.transposes, "N")
    shapes = {"a": (batch, m, k), "b": (batch, k, n), "c": (batch, m, n)}
    return tuple(
        Tensor(name, shape, (0, 2, 1) if side == "T" else (0, 1, 2), problem.dtype, name == "c")
        for (name, shape), side in zip(shapes.items(), transposes, strict=True)
    )


def dtype_macro(problem: GemmProblem) -> tuple[str, int]:
    """Macro DTYPE, the storage type."""
    return ("DTYPE", DTYPES.index(problem.dtype))
