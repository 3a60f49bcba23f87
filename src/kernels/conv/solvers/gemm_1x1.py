"""Convolutions with filters of one place as plain matrix multiplications, in all directions."""

from __future__ import annotations

from math import prod

from foretune.kernels.conv.arguments import DTYPES, tensors
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.conv.tiled import TiledConv
from foretune.kernels.gemm.strided import Operand, Strides, strided_matrices
from foretune.kernels.gemm.tiling import Matrices
from foretune.kernels.problem import Tensor
from foretune.kernels.runtime.properties import DeviceProperties

_MAX_PARTS = 65535


class Gemm1x1Conv(TiledConv):
    """The tensors are the matrices; images and pixels are one axis in two parts."""

    id = "Conv1x1Gemm"

    def why_not_conv(self, problem: ConvProblem, device: DeviceProperties) -> str | None:
        """Say why not: larger filters, strides, padding."""
        if prod(problem.filter_size) > 1:
            return "takes filters of one place"
        if set(problem.stride) != {1} or any(problem.padding):
            return "takes no stride and no padding; ConvImplicitGemm does"
        if problem.groups > _MAX_PARTS:
            return f"takes {_MAX_PARTS} groups at most, not {problem.groups}"
        return None

    def matrices(self, problem: ConvProblem) -> Matrices:
        """See it as a product for each part."""
        return _matrices(problem)


def _matrices(problem: ConvProblem) -> Matrices:
    x, w, y = tensors(problem)[:3]
    groups, pixels = problem.groups, prod(problem.in_size)
    filters, in_group = problem.out_channels // groups, problem.in_channels // groups
    images = problem.batch * pixels
    filters_of_w, channels_of_w = Strides(w.strides[0]), Strides(w.strides[1])
    group_of_w = filters * w.strides[0]

    def by_channels(tensor: Tensor, channels: int) -> Operand:
        return Operand(
            tensor.name, Strides(tensor.strides[1]), _pixels(tensor), channels * tensor.strides[1]
        )

    by_filters = Operand("w", filters_of_w, channels_of_w, group_of_w)
    dtype = ("DTYPE", DTYPES[problem.dtype])
    if problem.direction == "F":
        sizes = (filters, images, in_group)
        a, b, c = by_filters, by_channels(x, in_group), by_channels(y, filters)
    elif problem.direction == "B":
        sizes = (in_group, images, filters)
        a = Operand("w", channels_of_w, filters_of_w, group_of_w)
        b, c = by_channels(y, filters), by_channels(x, in_group)
    else:
        sizes = (filters, in_group, images)
        channels = in_group * x.strides[1]
        a, c = by_channels(y, filters), by_filters
        b = Operand("x", _pixels(x), Strides(x.strides[1]), channels)
    is_wrw = problem.direction == "W"
    return strided_matrices(
        dtype,
        sizes,
        a,
        b,
        c,
        parts=groups,
        k_inner=pixels if is_wrw else 0,
        n_inner=0 if is_wrw else pixels,
        size=next(tensor.size for tensor in (x, w, y) if tensor.is_output),
        bias=(problem.out_channels, y.strides[1]),
    )


def _pixels(tensor: Tensor) -> Strides:
    return Strides(tensor.strides[-1], tensor.strides[0])


SOLVER = Gemm1x1Conv()
