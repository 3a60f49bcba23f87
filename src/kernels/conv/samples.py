"""Single elements of a convolution's output in float64, by the definition."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.kernels.conv.problem import ConvProblem

Array = npt.NDArray[np.float64]
#: Takes a tensor's name and an index array for each of its axes; gives the elements.
Read = Callable[[str, tuple[Any, ...]], Array]


def terms(problem: ConvProblem) -> int:
    """Products that an element of the output sums at most.

    Examples
    --------
    >>> terms(ConvProblem("F", 1, 8, (8, 8), 4, (3, 3)))
    72
    """
    filters = prod(problem.filter_size)
    return {
        "F": problem.in_channels // problem.groups * filters,
        "B": problem.out_channels // problem.groups * filters,
        "W": problem.batch * prod(problem.out_size),
    }[problem.direction]


def element(problem: ConvProblem, place: tuple[int, ...], read: Read) -> float:
    """Compute one element of the output.

    Parameters
    ----------
    problem : ConvProblem
    place : tuple of int
        Its logical index, such as (n, k, row, column) of y.
    read : callable
        Gives elements of the inputs.

    Examples
    --------
    >>> def ones(name, index):
    ...     return np.ones(np.broadcast_shapes(*map(np.shape, index)))
    >>> problem = ConvProblem("F", 1, 3, (5, 5), 4, (3, 3), padding=(1, 1))
    >>> element(problem, (0, 0, 2, 2), ones), element(problem, (0, 0, 0, 0), ones)
    (27.0, 12.0)
    """
    return _BY_DIRECTION[problem.direction](problem, place, read)


def _of_y(problem: ConvProblem, place: tuple[int, ...], read: Read) -> float:
    n, k, *at = place
    per_group = problem.in_channels // problem.groups
    channel, taps = _grid(per_group, problem.filter_size)
    group = k // (problem.out_channels // problem.groups)
    where, inside = _x_places(problem, at, taps)
    x = read("x", (n, group * per_group + channel, *where))
    w = read("w", (k, channel, *taps))
    bias = float(read("bias", (np.array(k),))) if problem.bias else 0.0
    return float(np.sum(x * w * inside)) + bias


def _of_x(problem: ConvProblem, place: tuple[int, ...], read: Read) -> float:
    n, c, *at = place
    per_group = problem.in_channels // problem.groups
    filters = problem.out_channels // problem.groups
    channel, taps = _grid(filters, problem.filter_size)
    group = c // per_group
    where, inside = [], np.ones((), bool)
    for axis, tap in enumerate(taps):
        moved = at[axis] + problem.padding[axis] - tap * problem.dilation[axis]
        row, rest = np.divmod(moved, problem.stride[axis])
        inside = inside & (rest == 0) & (row >= 0) & (row < problem.out_size[axis])
        where.append(np.clip(row, 0, problem.out_size[axis] - 1))
    y = read("y", (n, group * filters + channel, *where))
    w = read("w", (group * filters + channel, c % per_group, *taps))
    return float(np.sum(y * w * inside))


def _of_w(problem: ConvProblem, place: tuple[int, ...], read: Read) -> float:
    k, c, *tap = place
    per_group = problem.in_channels // problem.groups
    image, at = _grid(problem.batch, problem.out_size)
    group = k // (problem.out_channels // problem.groups)
    where, inside = _x_places(problem, at, tap)
    x = read("x", (image, group * per_group + c, *where))
    return float(np.sum(x * read("y", (image, k, *at)) * inside))


def _grid(first: int, sizes: tuple[int, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Index arrays over a first axis and some spatial ones."""
    axes = np.ogrid[tuple(slice(size) for size in (first, *sizes))]
    return axes[0], tuple(axes[1:])


def _x_places(problem: ConvProblem, at: Any, taps: Any) -> tuple[list[Any], Any]:
    """Where filter places lie in x, and which of them are inside it."""
    where, inside = [], np.ones((), bool)
    for axis, size in enumerate(problem.in_size):
        row = np.asarray(
            at[axis] * problem.stride[axis]
            - problem.padding[axis]
            + taps[axis] * problem.dilation[axis]
        )
        inside = inside & (row >= 0) & (row < size)
        where.append(np.clip(row, 0, size - 1))
    return where, inside


_BY_DIRECTION: dict[str, Callable[[ConvProblem, tuple[int, ...], Read], float]] = {
    "F": _of_y,
    "B": _of_x,
    "W": _of_w,
}
