"""Hypothesis strategies that several tests share."""

from __future__ import annotations

from hypothesis import strategies as st

from foretune.kernels.conv.problem import (
    LAYOUTS_2D,
    LAYOUTS_3D,
    ConvProblem,
    conv_out_size,
)
from foretune.kernels.problem import DTYPE_BYTES

DRIVER_TYPES = ("FP32", "FP16", "BF16", "INT8")


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    directions: str = "FBW",
    dtypes: tuple[str, ...] = tuple(DTYPE_BYTES),
    uniform: bool = False,
    casts: bool = True,
    clamped: bool = True,
    biases: bool = True,
) -> ConvProblem:
    """Any valid 2-D or 3-D problem.

    ``uniform`` gives the three tensors one type and one layout; ``clamped`` allows filters larger
    than the padded input.
    """
    ndim = draw(st.sampled_from((2, 3)))

    def sizes(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(least, most)) for _ in range(ndim))

    in_size, filter_size = sizes(1, 300), sizes(1, 9)
    stride, padding, dilation = sizes(1, 4), sizes(0, 5), sizes(1, 3)
    derived = conv_out_size(in_size, filter_size, stride, padding, dilation)
    if not clamped:
        # Enlarge the input where the filter doesn't fit.
        in_size = tuple(
            size if out >= 1 else size + step * (1 - out)
            for size, out, step in zip(in_size, derived, stride, strict=True)
        )
        derived = conv_out_size(in_size, filter_size, stride, padding, dilation)
    groups = draw(st.sampled_from((1, 1, 2, 3, 32)))
    layouts = st.sampled_from(LAYOUTS_2D if ndim == 2 else LAYOUTS_3D)
    types = st.sampled_from(dtypes)
    cast_types = st.sampled_from(("", *DTYPE_BYTES)) if casts else st.just("")
    dtype, layout = draw(types), draw(layouts)
    return ConvProblem(
        draw(st.sampled_from(directions)),
        draw(st.integers(1, 1024)),
        groups * draw(st.integers(1, 2048)),
        in_size,
        groups * draw(st.integers(1, 2048)),
        filter_size,
        stride,
        padding,
        dilation,
        groups,
        dtype,
        layout,
        dtype if uniform else draw(types),
        dtype if uniform else draw(types),
        layout if uniform else draw(layouts),
        layout if uniform else draw(layouts),
        draw(st.integers(0, 1)) if biases else 0,
        draw(cast_types),
        draw(cast_types),
        draw(cast_types),
        tuple(max(1, size) for size in derived),
    )
