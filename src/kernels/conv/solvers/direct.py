"""Tiled direct convolution: patches of the input and the filters are kept in local memory."""

from __future__ import annotations

from foretune.kernels.conv.arguments import conv_macros, conv_sizes, is_channels_last
from foretune.kernels.conv.as_forward import as_forward, why_not_as_forward
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.conv.solver import ConvSolver
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import KernelSource, Launch, Plan, pack
from foretune.kernels.space import Config, Constraint, Space, Tunable

_LOCAL_MEMORY = 48 * 1024
_LEAST_THREADS = 32


class DirectConv(ConvSolver):
    """A block for a tile of pixels and channels of one image."""

    id = "ConvDirect"
    directions = ("F", "B")
    layouts = ("NCHW", "NHWC")

    def why_not_conv(self, problem: ConvProblem, device: DeviceProperties) -> str | None:
        """Say why not: strides of the backward direction, filters beyond local memory."""
        reason = why_not_as_forward(problem)
        if reason is not None:
            return reason
        if _local_bytes(problem, self.default_config(problem, device)) > _LOCAL_MEMORY:
            return "the filter's patch doesn't fit into local memory"
        return None

    def default_config(self, problem: ConvProblem, device: DeviceProperties) -> Config:
        """Smaller tiles for smaller outputs."""
        view = as_forward(problem)
        height, width = view.target.shape[2:]
        tile_w = _clamped_power(width, 8, 32)
        tile_h = _clamped_power(height, 2, 8)
        tile_k = _clamped_power(view.target_channels, 4, 32)
        config = {
            **{"TILE_H": tile_h, "TILE_W": tile_w, "TILE_K": tile_k},
            **{"PIXELS": 4 if tile_w >= 16 else 2, "PER_K": min(tile_k, 8), "CHANNELS": 1},
        }
        while _threads(config) < _LEAST_THREADS:
            halved = "PER_K" if config["PER_K"] > 1 else "PIXELS"
            config[halved] //= 2
        return Config(config)

    def space(self, problem: ConvProblem, device: DeviceProperties) -> Space:
        """Tile sizes, and what of a tile is one thread's."""
        default = self.default_config(problem, device)
        limit = min(_LOCAL_MEMORY, device.local_memory)

        def fits(*values: int) -> bool:
            names = ("TILE_H", "TILE_W", "TILE_K", "CHANNELS")
            return _local_bytes(problem, dict(zip(names, values, strict=True))) <= limit

        def has_threads(*values: int) -> bool:
            names = ("TILE_H", "TILE_W", "TILE_K", "PIXELS", "PER_K")
            threads = _threads(dict(zip(names, values, strict=True)))
            return _LEAST_THREADS <= threads <= min(512, device.max_threads)

        return Space(
            tuple(
                Tunable(name, values, default[name])
                for name, values in (
                    ("TILE_H", (1, 2, 4, 8, 16)),
                    ("TILE_W", (4, 8, 16, 32, 64)),
                    ("TILE_K", (4, 8, 16, 32, 64)),
                    ("PIXELS", (1, 2, 4, 8)),
                    ("PER_K", (1, 2, 4, 8, 16)),
                    ("CHANNELS", (1, 2, 4, 8, 16)),
                )
            ),
            (
                Constraint(("TILE_W", "PIXELS"), _divides, "PIXELS doesn't divide TILE_W"),
                Constraint(("TILE_K", "PER_K"), _divides, "PER_K doesn't divide TILE_K"),
                Constraint(
                    ("PIXELS", "PER_K"),
                    lambda pixels, per_k: pixels * per_k <= 64,
                    "more than 64 sums a thread",
                ),
                Constraint(
                    ("TILE_H", "TILE_W", "TILE_K", "PIXELS", "PER_K"),
                    has_threads,
                    "fewer than 32 or more than 512 threads",
                ),
                Constraint(
                    ("TILE_H", "TILE_W", "TILE_K", "CHANNELS"),
                    fits,
                    "patch and filters don't fit into local memory",
                ),
            ),
        )

    def plan(
        self, problem: ConvProblem, config: Config, alpha: float = 1.0, beta: float = 0.0
    ) -> Plan:
        """One launch."""
        patch_h, patch_w, patch, filters = _local_floats(problem, config)
        macros = (
            *conv_macros(problem),
            ("CHANNELS_LAST", int(is_channels_last(problem))),
            *config.items(),
            ("PATCH", patch),
            ("FILTERS", filters),
            ("THREADS", _threads(config)),
        )
        view = as_forward(problem)
        tiles = (
            -(-view.target.shape[2] // config["TILE_H"]),
            -(-view.target.shape[3] // config["TILE_W"]),
            -(-view.target_channels // config["TILE_K"]),
        )
        blocks = problem.batch * problem.groups * tiles[0] * tiles[1] * tiles[2]
        launch = Launch(
            KernelSource("conv/solvers/direct.cl", "conv_direct", macros),
            (blocks, 1, 1),
            (
                *("x", "w", "y", "bias", conv_sizes(problem, alpha, beta)),
                *(view.packed(), pack(patch_h, patch_w, *tiles)),
            ),
        )
        return Plan((launch,))


def _divides(whole: int, part: int) -> bool:
    return whole % part == 0


def _threads(config: Config | dict[str, int]) -> int:
    lanes = config["TILE_W"] // config["PIXELS"]
    return lanes * config["TILE_H"] * (config["TILE_K"] // config["PER_K"])


def _local_floats(
    problem: ConvProblem, config: Config | dict[str, int]
) -> tuple[int, int, int, int]:
    """Height and width of a patch, and floats kept of patches and filters, a power of two.

    Rounding up lets shapes share binaries.
    """
    patch_h, patch_w = (
        (tile - 1) * stride + (size - 1) * dilation + 1
        for tile, stride, size, dilation in zip(
            (config["TILE_H"], config["TILE_W"]),
            problem.stride,
            problem.filter_size,
            problem.dilation,
            strict=True,
        )
    )
    channels = config["CHANNELS"]
    filters = channels * problem.filter_size[0] * problem.filter_size[1] * config["TILE_K"]
    return patch_h, patch_w, _power_from(channels * patch_h * patch_w), _power_from(filters)


def _local_bytes(problem: ConvProblem, config: Config | dict[str, int]) -> int:
    return 4 * sum(_local_floats(problem, config)[2:])


def _power_from(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _clamped_power(size: int, least: int, most: int) -> int:
    return max(least, min(most, _power_from(size)))


SOLVER = DirectConv()
