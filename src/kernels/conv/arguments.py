"""Convolution problems as kernels see them: tensors in memory, packed sizes, macros."""

from __future__ import annotations

from foretune.kernels.conv.problem import DIRECTIONS, ConvProblem
from foretune.kernels.problem import Tensor
from foretune.kernels.solver import pack

#: What the output of a direction is called.
OUTPUTS = {"F": "y", "B": "x", "W": "w"}
#: Storage types that kernels compute with, and the macro DTYPE.
DTYPES = {"FP32": 0, "FP16": 1, "BF16": 2}
#: Layout -> axes of N, C, spatial from the slowest to the fastest in memory.
ORDERS = {
    "NCHW": (0, 1, 2, 3),
    "NHWC": (0, 2, 3, 1),
    "CHWN": (1, 2, 3, 0),
    "NCDHW": (0, 1, 2, 3, 4),
    "NDHWC": (0, 2, 3, 4, 1),
}


def tensors(problem: ConvProblem) -> tuple[Tensor, ...]:
    """List the tensors x, w, y and, if it is asked for, bias.

    Examples
    --------
    >>> problem = ConvProblem("B", 2, 4, (8, 8), 6, (3, 3), groups=2)
    >>> [(tensor.name, tensor.shape, tensor.is_output) for tensor in tensors(problem)]
    [('x', (2, 4, 8, 8), True), ('w', (6, 2, 3, 3), False), ('y', (2, 6, 6, 6), False)]
    """
    n, c, k, groups = problem.batch, problem.in_channels, problem.out_channels, problem.groups
    output = OUTPUTS[problem.direction]
    described = [
        ("x", (n, c, *problem.in_size), problem.layout, problem.dtype),
        ("w", (k, c // groups, *problem.filter_size), problem.weight_layout, problem.weight_dtype),
        ("y", (n, k, *problem.out_size), problem.out_layout, problem.out_dtype),
    ]
    made = [
        Tensor(name, shape, ORDERS[layout], dtype, name == output)
        for name, shape, layout, dtype in described
    ]
    if problem.bias:
        made.append(Tensor("bias", (k,), (0,), problem.dtype, False))
    return tuple(made)


def conv_sizes(problem: ConvProblem, alpha: float, beta: float) -> bytes:
    """Pack the struct ConvSizes of conv.h."""
    return pack(
        *(problem.batch, problem.in_channels, problem.out_channels, problem.groups),
        *in_3d(problem.in_size, 1),
        *in_3d(problem.out_size, 1),
        *in_3d(problem.filter_size, 1),
        *in_3d(problem.stride, 1),
        *in_3d(problem.padding, 0),
        *in_3d(problem.dilation, 1),
        float(alpha),
        float(beta),
    )


def in_3d(sizes: tuple[int, ...], missing: int) -> tuple[int, ...]:
    """Put what a depth of 1 stands for before the sizes of two dimensions.

    Examples
    --------
    >>> in_3d((3, 5), 1)
    (1, 3, 5)
    """
    return (missing,) * (3 - len(sizes)) + sizes


def conv_macros(problem: ConvProblem) -> tuple[tuple[str, int], ...]:
    """Macros that every convolution kernel takes: DIRECTION and DTYPE."""
    return (
        ("DIRECTION", DIRECTIONS.index(problem.direction)),
        ("DTYPE", DTYPES[problem.dtype]),
    )


def is_channels_last(problem: ConvProblem) -> bool:
    """Whether channels are the fastest axis of all tensors."""
    return problem.layout in ("NHWC", "NDHWC")
