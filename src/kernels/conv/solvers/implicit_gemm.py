"""Implicit GEMM on plain arithmetic: all directions, layouts and groups from one kernel."""

from __future__ import annotations

from math import prod

from foretune.kernels.conv.arguments import conv_macros, is_channels_last, tensors
from foretune.kernels.conv.gather import always_inside, classes, gather
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.conv.tiled import TiledConv
from foretune.kernels.gemm.tiling import Matrices
from foretune.kernels.runtime.properties import DeviceProperties

#: Parts of a grid at most, in y.
_MAX_PARTS = 65535


class ImplicitGemmConv(TiledConv):
    """The column matrix is gathered while it is multiplied; shares of K fill small grids."""

    id = "ConvImplicitGemm"

    def why_not_conv(self, problem: ConvProblem, device: DeviceProperties) -> str | None:
        """Say why not: too many groups or residue classes."""
        parts = problem.groups * prod(classes(problem))
        if parts > _MAX_PARTS:
            return f"takes {_MAX_PARTS} groups times classes of strides at most, not {parts}"
        return None

    def matrices(self, problem: ConvProblem) -> Matrices:
        """See it as a product for each part."""
        return _matrices(problem)


def _matrices(problem: ConvProblem) -> Matrices:
    x, w, y = tensors(problem)[:3]
    view = gather(problem)
    is_backward, is_wrw = problem.direction == "B", problem.direction == "W"
    pixels, out = (x, x) if is_backward else (y, w if is_wrw else y)
    m, channels = view.m, view.channels
    is_last = is_channels_last(problem)
    is_checked = not always_inside(problem)
    # One place of each filter, read without steps: rows of pixels lie whole in memory.
    is_plain = not is_checked and set(problem.stride) == {1} and prod(problem.filter_size) == 1
    whole_pixels = prod(view.gathered.shape[2:]) % 4 == 0 and is_plain
    pixel_vector = 4 if prod(pixels.shape[2:]) % 4 == 0 else 1
    in_fours = 4 if channels % 4 == 0 else 1
    m_in_fours = 4 if m % 4 == 0 else 1
    if is_wrw:
        a = (not is_last, m_in_fours if is_last else pixel_vector)
        b = (not is_last, in_fours if is_last else 4 if whole_pixels else 1)
        c_vector = 4 if view.taps % 4 == 0 else 1
    else:
        has_single_place = prod(problem.filter_size) == 1
        if is_backward:
            along_m = is_last or has_single_place
            a = (not along_m, m_in_fours if along_m else 1)
        else:
            a = (True, 4 if view.taps % 4 == 0 else 1)
        b = (is_last, in_fours if is_last else 4 if whole_pixels else 1)
        steps = is_backward and set(problem.stride) != {1}
        c_vector = m_in_fours if is_last else 1 if steps else pixel_vector
    return Matrices(
        file="conv/solvers/implicit_gemm.cl",
        macros=(
            *conv_macros(problem),
            ("NDIM", problem.ndim),
            ("CHANNELS_LAST", int(is_last)),
            ("CHECKED", int(is_checked)),
        ),
        geometry=view.geometry,
        a="y" if is_wrw else "w",
        b=view.gathered.name,
        c=out.name,
        m=m,
        n=view.taps if is_wrw else view.pixels,
        k=view.pixels if is_wrw else view.taps,
        parts=problem.groups * prod(classes(problem)),
        size=out.size,
        a_along_k=a[0],
        b_along_k=b[0],
        a_vector=a[1],
        b_vector=b[1],
        m_is_fastest=is_last and not is_wrw,
        c_vector=c_vector,
        channels=problem.out_channels,
        inner=y.strides[1],
    )


SOLVER = ImplicitGemmConv()
