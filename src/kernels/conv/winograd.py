"""Winograd's minimal filtering for 3 x 3 filters, at any size of the output tile."""

from __future__ import annotations

from typing import ClassVar

from foretune.kernels.conv.arguments import conv_macros, conv_sizes, is_channels_last
from foretune.kernels.conv.as_forward import AsForward
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.conv.transform_domain import TRANSFORM, TransformDomainConv
from foretune.kernels.gemm.problem import GemmProblem
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import KernelSource, Launch, Workspace, fast_divisor, pack
from foretune.kernels.space import Tunable

_FILE = "conv/winograd.cl"


class WinogradConv(TransformDomainConv):
    """F(out x out, 3 x 3): see winograd.cl for the method and the order of the workspace."""

    #: Outputs along one side of a tile.
    out: ClassVar[int]

    def transform_tunable(
        self,
        problem: ConvProblem,  # noqa: ARG002
        device: DeviceProperties,
    ) -> Tunable:
        """Threads of a block."""
        values = tuple(value for value in (32, 64, 128, 256) if value <= device.max_threads)
        return Tunable(TRANSFORM, values, min(128, values[-1]))

    def why_not_transform(self, problem: ConvProblem) -> str | None:
        """Say why not: anything but 3 x 3 filters with strides and dilations of 1."""
        if problem.filter_size != (3, 3):
            return "takes 3x3 filters"
        if problem.stride != (1, 1) or problem.dilation != (1, 1):
            return "takes strides and dilations of 1"
        return None

    def product(self, view: AsForward) -> GemmProblem:
        """One product for each place of a tile and each group."""
        tiles = self._tiles(view)[2]
        rows, columns = view.target_channels, tiles
        if is_channels_last(view.problem):
            rows, columns = columns, rows
        batch = (self.out + 2) ** 2 * view.problem.groups
        return GemmProblem(rows, columns, view.source_channels, batch=batch)

    def operands(self, view: AsForward) -> tuple[int, int]:
        """Put the filter on the left where channels come first, else on the right."""
        return (0, 1) if is_channels_last(view.problem) else (1, 0)

    def transforms(
        self,
        view: AsForward,
        transform: int,
        parts: tuple[Workspace, Workspace, Workspace],
        scales: tuple[float, float],
    ) -> tuple[Launch, Launch, Launch]:
        """One thread for a tile of one channel, or for a pair of channels."""
        problem = view.problem
        macros = (
            *conv_macros(problem),
            ("CHANNELS_LAST", int(is_channels_last(problem))),
            ("OUT", self.out),
            ("THREADS", transform),
        )
        sizes, forward = conv_sizes(problem, *scales), view.packed()
        into_input, into_filter, product = parts

        def launch(name: str, work: int, *arguments: str | Workspace | bytes) -> Launch:
            grid = (-(-work // transform), 1, 1)
            return Launch(KernelSource(_FILE, name, macros), grid, ("x", "w", "y", *arguments))

        tiles = self._tiles(view)[2]
        read = problem.groups * view.source_channels * tiles
        written = problem.groups * view.target_channels * tiles
        pairs = problem.groups * view.source_channels * view.target_channels
        from_work = self._work(view, view.source_channels, read)
        to_work = self._work(view, view.target_channels, written)
        return (
            launch("winograd_input", read, into_input, sizes, forward, from_work),
            launch("winograd_filter", pairs, into_filter, sizes, forward),
            launch("winograd_output", written, "bias", product, sizes, forward, to_work),
        )

    def _tiles(self, view: AsForward) -> tuple[int, int, int]:
        """Tiles along height and width, and of all images."""
        height, width = (-(-size // self.out) for size in view.target.shape[2:])
        return height, width, view.problem.batch * height * width

    def _work(self, view: AsForward, channels: int, threads: int) -> bytes:
        height, width, tiles = self._tiles(view)
        return pack(
            *fast_divisor(width),
            *fast_divisor(height),
            *fast_divisor(tiles),
            *fast_divisor(channels),
            *(width, height, tiles, channels, threads),
        )
