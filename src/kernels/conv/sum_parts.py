"""Adding up partial sums in a fixed order, as the last launch of a solver that splits its sums."""

from __future__ import annotations

from foretune.kernels.conv.arguments import DTYPES
from foretune.kernels.problem import Tensor
from foretune.kernels.solver import KernelSource, Launch, Workspace, pack

_THREADS = 128


def sum_parts(output: Tensor, parts: Workspace, count: int, alpha: float, beta: float) -> Launch:
    """Launch that adds up ``count`` fp32 copies of an output and stores the sum.

    Parameters
    ----------
    output : Tensor
        What is written: alpha * sum + beta * old.
    parts : Workspace
        Where the copies lie, one behind the other, each in the output's order of memory.
    count : int
    alpha, beta : float

    Examples
    --------
    >>> weights = Tensor("w", (8, 4, 3, 3), (0, 1, 2, 3), "FP16", True)
    >>> sum_parts(weights, Workspace(), 16, 1.0, 0.0).grid
    (3, 1, 1)
    """
    macros = (("DTYPE", DTYPES[output.dtype]), ("THREADS", _THREADS))
    return Launch(
        KernelSource("conv/sum_parts.cl", "sum_parts", macros),
        (-(-output.size // _THREADS), 1, 1),
        (parts, output.name, *map(pack, (output.size, count, float(alpha), float(beta)))),
    )
