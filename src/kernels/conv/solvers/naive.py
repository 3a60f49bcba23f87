"""Naive direct convolution: always applicable, and the reference on the device."""

from __future__ import annotations

import struct

from foretune.kernels.conv.arguments import conv_macros, conv_sizes, tensors
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.conv.solver import ConvSolver
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import KernelSource, Launch, Plan
from foretune.kernels.space import Config, Space, Tunable

#: Blocks at most; each thread then computes several elements.
MAX_BLOCKS = 1 << 16


class NaiveConv(ConvSolver):
    """One thread for each output element; any layout, any size."""

    id = "ConvNaive"
    mixes_layouts = True
    element_limit = 2**62

    def why_not_conv(self, problem: ConvProblem, device: DeviceProperties) -> str | None:
        """Nothing."""
        return None

    def space(self, problem: ConvProblem, device: DeviceProperties) -> Space:
        """Block sizes."""
        sizes = tuple(size for size in (64, 128, 256) if size <= device.max_threads)
        return Space((Tunable("THREADS", sizes, sizes[0]),))

    def plan(
        self, problem: ConvProblem, config: Config, alpha: float = 1.0, beta: float = 0.0
    ) -> Plan:
        """One launch."""
        macros = (*conv_macros(problem), ("THREADS", config["THREADS"]))
        x, w, y = tensors(problem)[:3]
        size = next(tensor.size for tensor in (x, w, y) if tensor.is_output)
        strides = [stride for tensor in (x, w, y) for stride in _in_5d(tensor.strides)]
        launch = Launch(
            KernelSource("conv/solvers/naive.cl", "conv_naive", macros),
            (min(MAX_BLOCKS, -(-size // config["THREADS"])), 1, 1),
            (
                *("x", "w", "y", "bias"),
                conv_sizes(problem, alpha, beta),
                struct.pack("<15q", *strides),
            ),
        )
        return Plan((launch,))


def _in_5d(strides: tuple[int, ...]) -> tuple[int, ...]:
    return strides if len(strides) == 5 else (*strides[:2], 0, *strides[2:])


SOLVER = NaiveConv()
