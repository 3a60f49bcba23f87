"""Gathering as kernels see it: the struct Geometry of conv/gather.h."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, prod

from foretune.kernels.conv.arguments import in_3d, tensors
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.problem import Tensor
from foretune.kernels.solver import fast_divisor, pack


@dataclass(frozen=True)
class Gather:
    """What a direction gathers, and from where.

    Parameters
    ----------
    geometry : bytes
        The struct Geometry.
    gathered : Tensor
        The tensor that is gathered from.
    m : int
        Channels of one group that are no taps' channels.
    channels : int
        Channels of one group that are.
    pixels, taps : int
        Of the largest class, over all images and all channels.
    """

    geometry: bytes
    gathered: Tensor
    m: int
    channels: int
    pixels: int
    taps: int


def gather(problem: ConvProblem, images: int = 0) -> Gather:
    """Describe how a problem gathers.

    Parameters
    ----------
    problem : ConvProblem
    images : int
        Images that are gathered from; default: all.

    Examples
    --------
    >>> view = gather(ConvProblem("F", 2, 4, (8, 8), 6, (3, 3), groups=2))
    >>> view.gathered.name, view.m, view.channels, view.pixels, view.taps
    ('x', 3, 2, 72, 18)
    """
    x, w, y = tensors(problem)[:3]
    is_backward, is_wrw = problem.direction == "B", problem.direction == "W"
    gathered, pixels = (y, x) if is_backward else (x, y)
    groups, images = problem.groups, images or problem.batch
    filters, in_group = problem.out_channels // groups, problem.in_channels // groups
    m, channels = (in_group, filters) if is_backward else (filters, in_group)
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
    geometry = pack(
        *(number for each in dimensions for number in _packed(each)),
        *(m, images, channels),
        *(gathered.strides[0], gathered.strides[1], pixels.strides[0], weight_c),
        *(a_m, c_m, *groups_of),
        *fast_divisor(channels),
    )
    return Gather(
        geometry,
        gathered,
        m,
        channels,
        images * prod(each["pixels"] for each in dimensions),
        channels * prod(each["taps"] for each in dimensions),
    )


def classes(problem: ConvProblem) -> tuple[int, ...]:
    """Count the residue classes of the stride in each dimension."""
    if problem.direction != "B":
        return (1,) * problem.ndim
    return problem.stride


def always_inside(problem: ConvProblem) -> bool:
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
