"""Implicit GEMM on plain arithmetic: all directions, layouts and groups from one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, prod

from foretune.kernels.conv.arguments import conv_macros, in_3d, is_channels_last, tensors
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.conv.solver import ConvSolver
from foretune.kernels.gemm.tiling import Matrices, adds_atomically, tile_plan, tile_space
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import Plan, fast_divisor, pack
from foretune.kernels.space import Config, Space

#: Parts of a grid at most, in y.
_MAX_PARTS = 65535


class ImplicitGemmConv(ConvSolver):
    """The column matrix is gathered while it is multiplied; shares of K fill small grids."""

    id = "ConvImplicitGemm"

    def why_not_conv(self, problem: ConvProblem, device: DeviceProperties) -> str | None:
        """Say why not: too many groups or residue classes."""
        parts = problem.groups * prod(_classes(problem))
        if parts > _MAX_PARTS:
            return f"takes {_MAX_PARTS} groups times classes of strides at most, not {parts}"
        return None

    def space(self, problem: ConvProblem, device: DeviceProperties) -> Space:
        """Tiles, threads' tiles, vectors, stages, shares of K."""
        return tile_space(_matrices(problem), device)

    def plan(
        self, problem: ConvProblem, config: Config, alpha: float = 1.0, beta: float = 0.0
    ) -> Plan:
        """One launch, and one or two more for shares of K."""
        return tile_plan(_matrices(problem), config, alpha, beta)

    def adds_atomically(self, problem: ConvProblem, config: Mapping[str, int]) -> bool:
        """Say whether shares of K are added atomically."""
        return adds_atomically(config)


def _classes(problem: ConvProblem) -> tuple[int, ...]:
    """Residue classes of the stride in each dimension."""
    if problem.direction != "B":
        return (1,) * problem.ndim
    return problem.stride


def _matrices(problem: ConvProblem) -> Matrices:
    x, w, y = tensors(problem)[:3]
    is_backward, is_wrw = problem.direction == "B", problem.direction == "W"
    gathered, pixels = (y, x) if is_backward else (x, y)
    groups = problem.groups
    filters, in_group = problem.out_channels // groups, problem.in_channels // groups
    m = in_group if is_backward else filters
    channels = filters if is_backward else in_group
    out, size = (x, x.size) if is_backward else (w, w.size) if is_wrw else (y, y.size)
    # Elements between channels of w that are rows of A or C, and between those of the taps.
    weight_m, weight_c = (
        (w.strides[1], w.strides[0]) if is_backward else (w.strides[0], w.strides[1])
    )
    a_m, c_m = (pixels.strides[1], weight_m) if is_wrw else (weight_m, pixels.strides[1])
    group_of_weights = filters * w.strides[0]
    groups_of = {
        "F": (group_of_weights, in_group * x.strides[1], filters * y.strides[1]),
        "B": (group_of_weights, filters * y.strides[1], in_group * x.strides[1]),
        "W": (filters * y.strides[1], in_group * x.strides[1], group_of_weights),
    }[problem.direction]
    dimensions = _dimensions(problem, gathered.strides[2:], pixels.strides[2:], w.strides[2:])
    most_pixels = problem.batch * prod(each["pixels"] for each in dimensions)
    most_taps = channels * prod(each["taps"] for each in dimensions)
    geometry = pack(
        *(number for each in dimensions for number in _packed(each)),
        *(m, problem.batch, channels),
        *(gathered.strides[0], gathered.strides[1], pixels.strides[0], weight_c),
        *(a_m, c_m, *groups_of),
        *fast_divisor(channels),
    )
    is_last = is_channels_last(problem)
    is_checked = not _always_inside(problem)
    # One place of each filter, read without steps: rows of pixels lie whole in memory.
    is_plain = not is_checked and set(problem.stride) == {1} and prod(problem.filter_size) == 1
    whole_pixels = prod(gathered.shape[2:]) % 4 == 0 and is_plain
    pixel_vector = 4 if prod(pixels.shape[2:]) % 4 == 0 else 1
    in_fours = 4 if channels % 4 == 0 else 1
    m_in_fours = 4 if m % 4 == 0 else 1
    if is_wrw:
        a = (not is_last, m_in_fours if is_last else pixel_vector)
        b = (not is_last, in_fours if is_last else 4 if whole_pixels else 1)
        c_vector = 4 if most_taps % 4 == 0 else 1
    else:
        has_single_place = prod(problem.filter_size) == 1
        if is_backward:
            along_m = is_last or has_single_place
            a = (not along_m, m_in_fours if along_m else 1)
        else:
            a = (True, 4 if most_taps % 4 == 0 else 1)
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
        geometry=geometry,
        a="y" if is_wrw else "w",
        b=gathered.name,
        c=out.name,
        m=m,
        n=most_taps if is_wrw else most_pixels,
        k=most_pixels if is_wrw else most_taps,
        parts=groups * prod(_classes(problem)),
        size=size,
        a_along_k=a[0],
        b_along_k=b[0],
        a_vector=a[1],
        b_vector=b[1],
        m_is_fastest=is_last and not is_wrw,
        c_vector=c_vector,
        channels=problem.out_channels,
        inner=y.strides[1],
    )


def _always_inside(problem: ConvProblem) -> bool:
    """Whether no tap of any pixel reaches outside the gathered tensor."""
    if any(problem.padding):
        return False
    if problem.direction == "B":
        return prod(problem.filter_size) == 1
    return all(
        (out - 1) * step + (taps - 1) * dilation < size
        for out, step, taps, dilation, size in zip(
            problem.out_size,
            problem.stride,
            problem.filter_size,
            problem.dilation,
            problem.in_size,
            strict=True,
        )
    )


def _dimensions(
    problem: ConvProblem,
    gathered: tuple[int, ...],
    pixel: tuple[int, ...],
    weight: tuple[int, ...],
) -> list[dict[str, int]]:
    """Fill the struct Dimension for depth, height and width."""
    is_backward = problem.direction == "B"
    described = []
    for stride_of, size, out, taps, step, pad, dilation in zip(
        zip(in_3d(gathered, 0), in_3d(pixel, 0), in_3d(weight, 0), strict=True),
        in_3d(problem.in_size, 1),
        in_3d(problem.out_size, 1),
        in_3d(problem.filter_size, 1),
        in_3d(problem.stride, 1),
        in_3d(problem.padding, 0),
        in_3d(problem.dilation, 1),
        strict=True,
    ):
        common = gcd(step, dilation)
        classes, tap_step = (step, step // common) if is_backward else (1, 1)
        pixels = size if is_backward else out
        described.append(
            {
                "size": out if is_backward else size,
                "filter": taps,
                "pixel_size": pixels,
                **dict(zip(("gathered", "pixel", "weight"), stride_of, strict=True)),
                "pixels": -(-pixels // classes),
                "taps": -(-taps // tap_step),
                "unit": 1 if is_backward else step,
                "tap_unit": -(dilation // common) if is_backward else dilation,
                "classes": classes,
                "tap_step": tap_step,
                "stride": step,
                "pad": pad,
                "dilation": dilation,
            }
        )
    return described


def _packed(dimension: Mapping[str, int]) -> list[int]:
    pixels, taps = dimension["pixels"], dimension["taps"]
    divisors = (pixels, max(1, pixels - 1), taps, max(1, taps - 1))
    return [*dimension.values(), *(number for each in divisors for number in fast_divisor(each))]


SOLVER = ImplicitGemmConv()
