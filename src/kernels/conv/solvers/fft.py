"""Convolution through the Fourier transform of overlapping tiles, for large filters."""

from __future__ import annotations

from math import prod

from foretune.kernels.conv.arguments import conv_macros, conv_sizes, is_channels_last
from foretune.kernels.conv.as_forward import AsForward
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.conv.transform_domain import TRANSFORM, TransformDomainConv
from foretune.kernels.gemm.problem import GemmProblem
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import KernelSource, Launch, Workspace, pack
from foretune.kernels.space import Tunable

_FILE = "conv/solvers/fft.cl"
#: Sides of tiles; the smallest is taken of which at least half are outputs.
_SIZES = (16, 32)
_FEWEST_TAPS = 16


class FFTConv(TransformDomainConv):
    """See fft.cl for the method and the order of the workspace."""

    id = "ConvFFT"

    def transform_tunable(self, problem: ConvProblem, device: DeviceProperties) -> Tunable:
        """Tiles of a block, as many as local memory holds."""
        size = _size(problem)
        limit = min(48 * 1024, device.local_memory)
        values = tuple(
            tiles
            for tiles in (2, 4, 8, 16)
            if 4 * size * (size + 2) * tiles <= limit and size * tiles <= device.max_threads
        )
        return Tunable(TRANSFORM, values, min(8, values[-1]))

    def why_not_transform(self, problem: ConvProblem) -> str | None:
        """Say why not: strides, and filters that leave a tile too few outputs."""
        if problem.stride != (1, 1):
            return "takes strides of 1"
        if prod(problem.filter_size) < _FEWEST_TAPS:
            return f"takes filters of {_FEWEST_TAPS} elements or more: smaller ones gain nothing"
        reach = _reach(problem)
        if reach >= _SIZES[-1] * 3 // 4:
            return f"takes filters that reach over less than {_SIZES[-1] * 3 // 4 + 1} elements"
        channels = max(problem.in_channels, problem.out_channels)
        if channels > 65535:
            return f"takes at most 65535 channels, not {channels}"
        return None

    def product(self, view: AsForward) -> GemmProblem:
        """One real product of twice the sizes for each complex place and each group."""
        size = _size(view.problem)
        batch = size * (size // 2 + 1) * view.problem.groups
        return GemmProblem(
            2 * view.target_channels, _tiles(view)[2], 2 * view.source_channels, batch=batch
        )

    def operands(self, view: AsForward) -> tuple[int, int]:
        """Put the filter on the left."""
        return 1, 0

    def transforms(
        self,
        view: AsForward,
        transform: int,
        parts: tuple[Workspace, Workspace, Workspace],
        scales: tuple[float, float],
    ) -> tuple[Launch, Launch, Launch]:
        """One thread for a row, then a column, of a tile."""
        problem = view.problem
        size = _size(problem)
        macros = (
            *conv_macros(problem),
            ("CHANNELS_LAST", int(is_channels_last(problem))),
            ("SIZE", size),
            ("TILES", transform),
            ("THREADS", size * transform),
        )
        height, width, tiles = _tiles(view)
        sizes, forward = conv_sizes(problem, *scales), view.packed()
        work = pack(width, height, tiles, size - _reach(problem))
        into_input, into_filter, product = parts

        def launch(
            name: str, lanes: int, channels: int, *arguments: str | Workspace | bytes
        ) -> Launch:
            grid = (-(-lanes // transform), channels * problem.groups, 1)
            return Launch(KernelSource(_FILE, name, macros), grid, ("x", "w", "y", *arguments))

        source, target = view.source_channels, view.target_channels
        return (
            launch("fft_input", tiles, source, into_input, sizes, forward, work),
            launch("fft_filter", source, target, into_filter, sizes, forward),
            launch("fft_output", tiles, target, "bias", product, sizes, forward, work),
        )


def _reach(problem: ConvProblem) -> int:
    """Elements that a filter reaches beyond its first one, along the longer side."""
    return max(
        (size - 1) * dilation
        for size, dilation in zip(problem.filter_size, problem.dilation, strict=True)
    )


def _size(problem: ConvProblem) -> int:
    return next((size for size in _SIZES if 2 * _reach(problem) <= size), _SIZES[-1])


def _tiles(view: AsForward) -> tuple[int, int, int]:
    """Tiles along height and width, and of all images."""
    out = _size(view.problem) - _reach(view.problem)
    height, width = (-(-size // out) for size in view.target.shape[2:])
    return height, width, view.problem.batch * height * width


SOLVER = FFTConv()
