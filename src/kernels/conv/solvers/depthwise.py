"""Depthwise convolution: one input channel a group."""

from __future__ import annotations

from foretune.kernels.conv.arguments import (
    DTYPES,
    conv_macros,
    conv_sizes,
    is_channels_last,
    tensors,
)
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.conv.solver import ConvSolver
from foretune.kernels.gemm.split_k import Shares
from foretune.kernels.problem import DTYPE_BYTES
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import KernelSource, Launch, Plan, Workspace, fast_divisor, pack
from foretune.kernels.space import Config, Constraint, Space, Tunable

_FILE = "conv/solvers/depthwise.cl"
_MAX_PARTS = 4096


class DepthwiseConv(ConvSolver):
    """A thread for a few neighbouring pixels of one or a few channels."""

    id = "ConvDepthwise"
    layouts = ("NCHW", "NHWC")

    def why_not_conv(self, problem: ConvProblem, device: DeviceProperties) -> str | None:
        """Say why not, if groups have several input channels."""
        if problem.groups != problem.in_channels or problem.groups == 1:
            return "takes one input channel for each of several groups"
        return None

    def space(self, problem: ConvProblem, device: DeviceProperties) -> Space:
        """Pixels and channels of a thread and of a block."""
        threads = tuple(size for size in (32, 64, 128, 256, 512) if size <= device.max_threads)
        on_cpu = device.arch == "cpu"
        if problem.direction == "W":
            return _wrw_space(problem, threads, on_cpu)
        largest = 16 // DTYPE_BYTES[problem.dtype]
        output = problem.out_size if problem.direction == "F" else problem.in_size
        vectors = tuple(
            vector
            for vector in (1, 2, 4, 8)
            if vector == 1 or (_is_vector(problem, vector) and vector <= largest)
        )
        columns = (1, 2, 4, 8)
        column = 1 if vectors[-1] > 1 or on_cpu else min(2, _power_below(output[-1]))
        return Space(
            (
                Tunable("ROWS", (1, 2, 4), 1),
                Tunable("COLUMNS", columns, column),
                Tunable("VECTOR", vectors, vectors[min(1, len(vectors) - 1)]),
                Tunable("THREADS", threads, 64 if on_cpu else 128),
            ),
            (
                Constraint(
                    ("ROWS", "COLUMNS", "VECTOR"),
                    lambda rows, columns, vector: rows * columns * vector <= 32,
                    "more than 32 sums a thread",
                ),
            ),
        )

    def plan(
        self, problem: ConvProblem, config: Config, alpha: float = 1.0, beta: float = 0.0
    ) -> Plan:
        """One launch; two for the weights, whose sums are split."""
        macros = (
            *conv_macros(problem),
            ("CHANNELS_LAST", int(is_channels_last(problem))),
            *config.items(),
        )
        sizes = conv_sizes(problem, alpha, beta)
        if problem.direction == "W":
            return _wrw_plan(problem, dict(config), macros, sizes, alpha, beta)
        forward = problem.direction == "F"
        output = problem.out_size if forward else problem.in_size
        channels = problem.out_channels if forward else problem.in_channels
        tiles_h = -(-output[0] // config["ROWS"])
        tiles_w = -(-output[1] // config["COLUMNS"])
        channels //= config["VECTOR"]
        work = problem.batch * channels * tiles_h * tiles_w
        launch = Launch(
            KernelSource(_FILE, "conv_depthwise", macros),
            (-(-work // config["THREADS"]), 1, 1),
            (
                *("x", "w", "y", "bias"),
                sizes,
                _shape(problem, tiles_w, tiles_h, channels, work),
            ),
        )
        return Plan((launch,))


def _wrw_space(problem: ConvProblem, threads: tuple[int, ...], on_cpu: bool) -> Space:
    pixels = problem.batch * problem.out_size[0] * problem.out_size[1]
    lanes = (1, 2, 4, 8, 16, 32, 64) if is_channels_last(problem) else (1,)
    # As many parts as give each block's threads a few pixels.
    most = min(_MAX_PARTS, 65535, max(1, pixels // 64))
    parts = tuple(1 << power for power in range(most.bit_length()))
    wanted = max(1, 2048 // -(-problem.out_channels // lanes[-1]))
    return Space(
        (
            Tunable("TAPS", (1, 3, 5, 9), 5),
            Tunable("CHANNELS", lanes, min(lanes[-1], 32)),
            Tunable("THREADS", threads, 64 if on_cpu else 128),
            Tunable("PARTS", parts, max(part for part in parts if part <= wanted)),
        ),
        (
            Constraint(
                ("CHANNELS", "THREADS"),
                lambda channels, threads: channels <= threads,
                "more channels than threads",
            ),
        ),
    )


def _wrw_plan(
    problem: ConvProblem,
    config: dict[str, int],
    macros: tuple[tuple[str, int], ...],
    sizes: bytes,
    alpha: float,
    beta: float,
) -> Plan:
    weights = tensors(problem)[1]
    pixels = problem.batch * problem.out_size[0] * problem.out_size[1]
    part_pixels = -(-pixels // config["PARTS"])
    parts = -(-pixels // part_pixels)
    # How many parts there are is no business of the binary's.
    macros = tuple((name, value) for name, value in macros if name != "PARTS")
    launch = Launch(
        KernelSource(_FILE, "conv_depthwise_wrw", macros),
        (-(-problem.out_channels // config["CHANNELS"]), parts, 1),
        (
            *("x", "y", Workspace()),
            sizes,
            _shape(problem, problem.out_size[1], problem.out_size[0], problem.out_channels, 0),
            pack(part_pixels),
        ),
    )
    total = Shares(weights.name, DTYPES[weights.dtype], weights.size, parts, alpha, beta)
    return Plan((launch, total.sum()), parts * weights.size * 4)


def _shape(problem: ConvProblem, tiles_w: int, tiles_h: int, channels: int, threads: int) -> bytes:
    return pack(
        *fast_divisor(tiles_w),
        *fast_divisor(tiles_h),
        *fast_divisor(channels),
        *fast_divisor(problem.stride[0]),
        *fast_divisor(problem.stride[1]),
        *(tiles_w, tiles_h, channels, threads, problem.out_channels // problem.groups),
    )


def _is_vector(problem: ConvProblem, vector: int) -> bool:
    return (
        is_channels_last(problem)
        and problem.in_channels == problem.out_channels
        and problem.in_channels % vector == 0
    )


def _power_below(size: int) -> int:
    return 1 << (size.bit_length() - 1)


SOLVER = DepthwiseConv()
