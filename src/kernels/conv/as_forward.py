"""Backward data with a stride of 1 seen as a forward convolution with the filter turned round."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from foretune.kernels.conv.arguments import tensors
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.problem import Tensor
from foretune.kernels.solver import pack


@dataclass(frozen=True)
class AsForward:
    """What is read and what is written by a problem of direction F, or B with a stride of 1.

    Parameters
    ----------
    source, target : Tensor
        x and y for F, y and x for B.
    source_channels, target_channels : int
        Of one group.
    padding : tuple of int
        Zeros before the source; negative where its first elements are never read.
    problem : ConvProblem
    """

    source: Tensor
    target: Tensor
    source_channels: int
    target_channels: int
    padding: tuple[int, ...]
    problem: ConvProblem

    def packed(self) -> bytes:
        """Pack the struct AsForward of as_forward.h, for two dimensions."""
        problem = self.problem
        w = tensors(problem)[1]
        step_k, step_c, *_, step_tap = w.strides
        taps = prod(problem.filter_size)
        group = problem.out_channels // problem.groups * step_k
        if problem.direction == "F":
            steps = (0, group, step_k, step_c, step_tap)
        else:
            steps = ((taps - 1) * step_tap, group, step_c, step_k, -step_tap)
        return pack(
            *(self.source_channels, self.target_channels),
            *(*self.source.shape[2:], *self.target.shape[2:], *self.padding),
            *steps,
        )


def why_not_as_forward(problem: ConvProblem) -> str | None:
    """Say why a problem can't be seen so; None if it can."""
    if problem.direction == "W":
        return "computes F and B, not W"
    if problem.direction == "B" and set(problem.stride) != {1}:
        return "computes the backward direction with a stride of 1 alone"
    return None


def as_forward(problem: ConvProblem) -> AsForward:
    """See a problem as a forward convolution.

    Examples
    --------
    >>> view = as_forward(ConvProblem("B", 2, 4, (8, 8), 6, (3, 3), groups=2))
    >>> view.source.name, view.target.name, view.source_channels, view.padding
    ('y', 'x', 3, (2, 2))
    """
    x, w, y = tensors(problem)[:3]
    of_group = (problem.in_channels // problem.groups, problem.out_channels // problem.groups)
    if problem.direction == "F":
        return AsForward(x, y, *of_group, problem.padding, problem)
    padding = tuple(
        (size - 1) * dilation - pad
        for size, dilation, pad in zip(w.shape[2:], problem.dilation, problem.padding, strict=True)
    )
    return AsForward(y, x, *of_group[::-1], padding, problem)
