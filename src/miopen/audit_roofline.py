"""The least time that a measurement can have taken, by operations and bytes.

Only what no implementation can avoid is counted, so an entry below the bound is wrong, whatever
the solver does:

* Multiplications with padding are no work, and a fast algorithm needs fewer than the direct one:
  the Winograd solvers by the factor of their tiles, FFT at least one for each output point and
  pair of channels.
* A benchmark repeats one call, so what fits a cache may never reach memory. Every byte has to come
  from the second-level cache, and what is beyond two caches' worth (one left by the last call, one
  left dirty by this one) from memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from types import MappingProxyType

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.devices import DeviceFacts
from foretune.kernels.problem import DTYPE_BYTES


@dataclass(frozen=True)
class CacheFacts:
    """The caches that all compute units share.

    Parameters
    ----------
    bytes_per_clock : int
        What the second-level cache delivers in one clock.
    last_level_bytes : int
        Size of all that outlives a kernel: second level, and Infinity Cache where there is one.
    """

    bytes_per_clock: int
    last_level_bytes: int


# AMD's CDNA, CDNA 2 and CDNA 3 white papers; whole devices, because a partition has less.
_CACHES = MappingProxyType(
    {
        "gfx906": CacheFacts(16 * 128, 4 * 2**20),
        "gfx908": CacheFacts(32 * 128, 8 * 2**20),
        "gfx90a": CacheFacts(32 * 128, 8 * 2**20),
        "gfx942": CacheFacts(8 * 16 * 128, 8 * 4 * 2**20 + 256 * 2**20),
        "gfx950": CacheFacts(8 * 16 * 128, 8 * 4 * 2**20 + 256 * 2**20),
    }
)

# Outputs of a tile in one dimension and taps of its filter; F(2, 3) and F(3, 2) save alike.
_RXS_SAVING = (2 * 3 / (2 + 3 - 1)) ** 2
# A longer filter is no real one, and counting its taps would take long.
_MOST_TAPS = 10_000
_MULTIPASS = re.compile(r"ConvWinograd3x3MultipassWrW<(\d+)-(\d+)(?:-(\d+)-(\d+))?>")


def least_ms(
    problem: ConvProblem, solver: str, algorithm_family: str, device: DeviceFacts
) -> float | None:
    """Time in milliseconds that a solver can't have been faster than.

    Parameters
    ----------
    problem : ConvProblem
    solver : str
        MIOpen's solver id.
    algorithm_family : str
        "Direct", "FFT", "GEMM", "ImplicitGEMM" or "Winograd".
    device : DeviceFacts

    Returns
    -------
    float or None
        None if nothing is known of the arch's caches.

    Examples
    --------
    >>> from foretune.kernels.devices import device_facts
    >>> problem = ConvProblem("F", 64, 256, (56, 56), 256, (1, 1))
    >>> round(least_ms(problem, "GemmFwdRest", "GEMM", device_facts("gfx90a")), 3)
    0.581
    """
    cache = _CACHES.get(device.arch)
    if cache is None:
        return None
    span = _span(
        problem.in_size,
        problem.filter_size,
        problem.stride,
        problem.padding,
        problem.dilation,
        problem.out_size,
    )
    channels = problem.batch * problem.out_channels * (problem.in_channels // problem.groups)
    direct = channels * span.products
    if algorithm_family == "Winograd":
        products = direct / winograd_saving(solver)
    elif algorithm_family == "FFT":
        products = min(direct, channels * prod(problem.out_size))
    else:
        products = direct
    math = 2 * products / device.peak_flops(DTYPE_BYTES[problem.dtype])
    moved = _moved_bytes(problem, span)
    near = moved / (cache.bytes_per_clock * device.clock_mhz * 1e6)
    beyond = max(0, moved - 2 * cache.last_level_bytes)
    far = beyond / (device.bandwidth_gbs * 1e9)
    return 1e3 * max(math, near, far)


def winograd_saving(solver: str) -> float:
    """Multiplications of the direct algorithm for one of a Winograd solver's, at most.

    Examples
    --------
    >>> winograd_saving("ConvBinWinogradRxSf2x3g1")
    2.25
    >>> round(winograd_saving("ConvWinograd3x3MultipassWrW<7-3>"), 2)
    5.44
    """
    match = _MULTIPASS.fullmatch(solver)
    if match is None:
        return _RXS_SAVING
    filter_h, tile_h, filter_w, tile_w = (int(number) if number else 0 for number in match.groups())
    if not filter_w:
        filter_w, tile_w = filter_h, tile_h
    return (filter_h * tile_h / (filter_h + tile_h - 1)) * (
        filter_w * tile_w / (filter_w + tile_w - 1)
    )


@dataclass(frozen=True)
class _Span:
    """What of a convolution's planes takes part.

    `products` counts the pairs of an output point and a tap that hit the input; the others count
    points of x, y and the filter that are in such a pair.
    """

    products: int
    in_points: int
    out_points: int
    taps: int


@lru_cache(maxsize=65536)
def _span(
    in_size: tuple[int, ...],
    filter_size: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    out_size: tuple[int, ...],
) -> _Span:
    dimensions = [
        _span_1d(*sizes)
        for sizes in zip(in_size, filter_size, stride, padding, dilation, out_size, strict=True)
    ]
    return _Span(*(prod(counts) for counts in zip(*dimensions, strict=True)))


@lru_cache(maxsize=65536)
def _span_1d(
    in_size: int, filter_size: int, stride: int, padding: int, dilation: int, out_size: int
) -> tuple[int, int, int, int]:
    """Pairs of output point and tap within the input, and points of x, y and filter in them."""
    if filter_size > _MOST_TAPS:
        return 0, 0, 0, 0
    products = taps = 0
    out_runs = []
    # Points of x by their remainder, because a tap reads every stride-th.
    in_runs: dict[int, list[tuple[int, int]]] = {}
    for tap in range(filter_size):
        offset = tap * dilation - padding
        first = max(0, -(offset // stride))
        last = min(out_size - 1, (in_size - 1 - offset) // stride)
        if last < first:
            continue
        taps += 1
        products += last - first + 1
        out_runs.append((first, last))
        start, remainder = divmod(first * stride + offset, stride)
        in_runs.setdefault(remainder, []).append((start, start + last - first))
    inputs = sum(map(_covered, in_runs.values()))
    return products, inputs, _covered(out_runs), taps


def _covered(runs: list[tuple[int, int]]) -> int:
    """Whole numbers in at least one of the runs, whose ends are included."""
    count, beyond = 0, 0
    for first, last in sorted(runs):
        count += max(0, last + 1 - max(first, beyond))
        beyond = max(beyond, last + 1)
    return count


def _moved_bytes(problem: ConvProblem, span: _Span) -> int:
    """Bytes of x, w and y that have to be read or written; a result is written whole."""
    in_points, out_points, taps = span.in_points, span.out_points, span.taps
    if problem.direction == "F":
        out_points = prod(problem.out_size)
    elif problem.direction == "B":
        in_points = prod(problem.in_size)
    else:
        taps = prod(problem.filter_size)
    n, c, k = problem.batch, problem.in_channels, problem.out_channels
    return (
        n * c * in_points * DTYPE_BYTES[problem.dtype]
        + k * (c // problem.groups) * taps * DTYPE_BYTES[problem.weight_dtype]
        + n * k * out_points * DTYPE_BYTES[problem.out_dtype]
    )
