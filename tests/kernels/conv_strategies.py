"""Convolution problems small enough to be computed in float64 a few hundred times."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from foretune.kernels.conv.problem import ConvProblem, conv_out_size
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import Solver

#: Spatial sizes of the filter; the common ones often.
_FILTERS_2D = ((1, 1), (3, 3), (3, 3), (5, 5), (1, 7), (7, 3), (2, 4), (11, 9))
_FILTERS_3D = ((1, 1, 1), (3, 3, 3), (2, 1, 3))


@st.composite
def conv_problems(draw: st.DrawFn, ndims: tuple[int, ...] = (2, 2, 2, 3)) -> ConvProblem:
    """A problem of some kind that some solver is made for, or of none."""
    ndim = draw(st.sampled_from(ndims))

    def each(values: st.SearchStrategy[int], plain: int) -> tuple[int, ...]:
        if draw(st.booleans()):
            return (plain,) * ndim
        return tuple(draw(values) for _ in range(ndim))

    filter_size = draw(st.sampled_from(_FILTERS_2D if ndim == 2 else _FILTERS_3D))
    stride = each(st.integers(1, 3), 1)
    dilation = each(st.integers(1, 3), 1)
    padding = each(st.integers(0, 3), draw(st.sampled_from((0, filter_size[0] // 2))))
    in_size = tuple(draw(st.integers(1, 20 if ndim == 2 else 7)) for _ in range(ndim))
    out_size = conv_out_size(in_size, filter_size, stride, padding, dilation)
    in_size = tuple(
        size if out >= 1 else size + step * (1 - out)
        for size, out, step in zip(in_size, out_size, stride, strict=True)
    )
    groups, in_channels, out_channels = draw(_channels())
    layouts = ("NCHW", "NHWC") if ndim == 2 else ("NCDHW", "NDHWC")
    direction = draw(st.sampled_from("FBW"))
    return ConvProblem(
        direction,
        draw(st.integers(1, 4)),
        in_channels,
        in_size,
        out_channels,
        filter_size,
        stride,
        padding,
        dilation,
        groups,
        dtype=draw(st.sampled_from(("FP32", "FP16", "BF16"))),
        layout=draw(st.sampled_from(layouts)),
        bias=draw(st.integers(0, 1)) if direction == "F" else 0,
    )


@st.composite
def _channels(draw: st.DrawFn) -> tuple[int, int, int]:
    kind = draw(st.sampled_from(("plain", "eights", "groups", "depthwise")))
    if kind == "plain":
        return 1, draw(st.integers(1, 40)), draw(st.integers(1, 40))
    if kind == "eights":
        return 1, 8 * draw(st.integers(1, 6)), 8 * draw(st.integers(1, 6))
    groups = draw(st.integers(2, 6))
    if kind == "groups":
        return groups, groups * draw(st.integers(1, 8)), groups * draw(st.integers(1, 8))
    return groups, groups, groups * draw(st.integers(1, 2))


def applicable_to(solver: Solver[Any], device: DeviceProperties) -> st.SearchStrategy[ConvProblem]:
    """Problems that a solver can compute."""
    return conv_problems().filter(lambda problem: solver.is_applicable(problem, device))
