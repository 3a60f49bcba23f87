"""A convolution as the matrix products that matrix cores compute."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

from foretune.kernels.conv.problem import ConvProblem

#: Channels that are loaded at once; those of each tap are rounded up to it.
CHUNK = 8


@dataclass(frozen=True)
class Extents:
    """The product of one group and one class of places, the largest class counting.

    Parameters
    ----------
    rows, columns, depth : int
        Sizes of the product: the output is rows x columns.
    tap_depth : int
        Part of the depth that is of one tap (one place of the filter).
    groups, classes : int
        How many such products there are. Only B has several classes of places of x: each is
        reached by some taps only.
    """

    rows: int
    columns: int
    depth: int
    tap_depth: int
    groups: int
    classes: int

    @property
    def partial_bytes(self) -> int:
        """Bytes of the sums that the blocks of one split leave."""
        return self.classes * self.groups * self.rows * -(-self.columns // CHUNK) * CHUNK * 4


def extents_of(problem: ConvProblem) -> Extents:
    """Give the extents of a problem.

    Examples
    --------
    >>> extents_of(ConvProblem("F", 2, 16, (8, 8), 32, (3, 3), padding=(1, 1)))
    Extents(rows=128, columns=32, depth=144, tap_depth=16, groups=1, classes=1)
    """
    in_group = problem.in_channels // problem.groups
    out_group = problem.out_channels // problem.groups
    taps = prod(problem.filter_size)
    places = problem.batch * prod(row_grid(problem))
    channels = _round_up(in_group)
    if problem.direction == "F":
        return Extents(places, out_group, taps * channels, channels, problem.groups, 1)
    if problem.direction == "W":
        return Extents(out_group, taps * channels, places, places, problem.groups, 1)
    taps = prod(
        -(-size // hop(stride, dilation))
        for size, stride, dilation in zip(
            problem.filter_size, problem.stride, problem.dilation, strict=True
        )
    )
    channels = _round_up(out_group)
    classes = prod(problem.stride)
    return Extents(places, in_group, taps * channels, channels, problem.groups, classes)


def row_grid(problem: ConvProblem) -> tuple[int, ...]:
    """Places along each axis: of y, or for B of x within a class."""
    if problem.direction != "B":
        return problem.out_size
    return tuple(
        -(-size // stride) for size, stride in zip(problem.in_size, problem.stride, strict=True)
    )


def hop(stride: int, dilation: int) -> int:
    """Every how many taps hit the same class of places."""
    return stride // gcd(stride, dilation)


def _round_up(channels: int) -> int:
    return -(-channels // CHUNK) * CHUNK
