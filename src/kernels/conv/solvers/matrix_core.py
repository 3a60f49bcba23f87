"""Implicit GEMM on matrix cores, for fp16 and bf16 with fp32 accumulation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from types import MappingProxyType

from foretune.kernels.conv.arguments import conv_macros, in_3d, is_channels_last, tensors
from foretune.kernels.conv.matrix_default import Tile, best_tile
from foretune.kernels.conv.matrix_extents import CHUNK, Extents, extents_of, hop, row_grid
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.conv.solver import ConvSolver
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import (
    KernelSource,
    Launch,
    Plan,
    Workspace,
    align,
    fast_divisor,
    pack,
)
from foretune.kernels.space import Config, Constraint, Space, Tunable

_FILE = "conv/solvers/matrix_core.cl"
#: AMD's archs whose matrix cores take fp16 and bf16.
_MFMA_ARCHS = ("gfx908", "gfx90a", "gfx942", "gfx950")
#: The first arch of NVIDIA with mma.sync.m16n8k16 and cp.async.
_FIRST_SM = 80
#: The arch with wgmma: rows that it multiplies at once, by as many threads of four warps.
_WGMMA_ARCH = "sm_90"
_WGMMA_ROWS = 64
_WARPGROUP = 128
#: Sums that a thread may hold in registers.
_MAX_SUMS = 128
#: Registers that a thread needs beside sums and operands.
_OTHER_REGISTERS = 40
#: Registers that all threads of a block share.
_REGISTERS = MappingProxyType({"cuda": 1 << 16, "hip": 1 << 17})
#: Chunks that a thread may fetch into registers at once.
_MAX_FETCHED = 8
_MAX_WORKSPACE = 1 << 30
#: Blocks in y and z.
_MAX_GRID = 65535
_SUM_THREADS = 64
#: The tensor that is gathered, the other input, the output.
_TENSORS = {"F": ("x", "w", "y"), "B": ("y", "w", "x"), "W": ("x", "y", "w")}


class MatrixCoreConv(ConvSolver):
    """A tile of the output for each block of waves, in steps through filter and channels."""

    id = "ConvMatrixCoreGemm"
    dtypes = ("FP16", "BF16")

    def why_never(self, device: DeviceProperties) -> str | None:
        """Say so if the device has no matrix cores that the kernel knows."""
        arch = device.arch.split(":")[0]
        if device.backend == "hip" and arch in _MFMA_ARCHS:
            return None
        if device.backend == "cuda" and int(arch.removeprefix("sm_")) >= _FIRST_SM:
            return None
        return f"{device.arch} has no matrix cores that it could use"

    def why_not_conv(self, problem: ConvProblem, device: DeviceProperties) -> str | None:
        """Say why not, if there are no matrix cores or more blocks than a grid has."""
        reason = self.why_never(device)
        if reason is not None:
            return reason
        if problem.groups > _MAX_GRID:
            return f"takes {_MAX_GRID} groups at most, not {problem.groups}"
        if extents_of(problem).classes > _MAX_GRID:
            return f"strides of {problem.stride} have too many classes of places"
        return None

    def space(self, problem: ConvProblem, device: DeviceProperties) -> Space:
        """Tiles, waves, stages, the split of depth and the order of blocks."""
        return self._space(problem, device, _default(problem, device))

    def bounds(self, problem: ConvProblem, device: DeviceProperties) -> Space:
        """Give the same configs without choosing a default."""
        return self._space(problem, device, {})

    def _space(
        self, problem: ConvProblem, device: DeviceProperties, default: Mapping[str, int]
    ) -> Space:
        extents = extents_of(problem)
        on_cuda = device.backend == "cuda"
        vectors = _vectors(problem)
        is_async = bool(on_cuda and vectors["VECTOR_A"] and vectors["VECTOR_B"])
        local = max(device.local_memory, device.dynamic_local_memory)
        splits = tuple(1 << power for power in range(9))

        def tunable(name: str, *values: int) -> Tunable:
            return Tunable(name, values, default.get(name, values[0]))

        return Space(
            (
                tunable("MATRIX", *_matrix_shapes(device, is_async)),
                tunable("TILE_M", 16, 32, 64, 128, 256),
                tunable("TILE_N", 16, 32, 64, 128, 256),
                tunable("TILE_K", *((16, 32, 64, 128) if is_async else (16, 32, 64))),
                tunable("WAVES_M", 1, 2, 4),
                tunable("WAVES_N", 1, 2, 4),
                tunable("STAGES", *((2, 3, 4, 5, 6) if is_async else (1, 2))),
                tunable("BAND", 1, 4, 16),
                tunable("SPLIT_K", *splits),
                tunable("WAVE", device.wave_size),
            ),
            (
                Constraint(
                    ("TILE_M",),
                    lambda tile: tile < 2 * max(64, extents.rows),
                    "the tile has more than twice the rows",
                ),
                Constraint(
                    ("TILE_N",),
                    lambda tile: tile < 2 * max(32, extents.columns),
                    "the tile has more than twice the columns",
                ),
                Constraint(
                    ("MATRIX", "TILE_M", "WAVES_M"),
                    lambda matrix, tile, waves: tile % (waves * matrix) == 0,
                    "a wave would have no rows",
                ),
                Constraint(
                    ("MATRIX", "TILE_N", "WAVES_N"), _columns_fit, "a wave would have no columns"
                ),
                Constraint(
                    ("MATRIX", "STAGES"),
                    lambda matrix, stages: matrix != _WGMMA_ROWS or stages >= 3,
                    "wgmma multiplies two stages while another is filled",
                ),
                Constraint(
                    ("MATRIX", "TILE_M", "TILE_N", "TILE_K", "WAVES_M", "WAVES_N", "WAVE"),
                    lambda *values: _fits_registers(device, is_async, *values),
                    "more registers than a block has",
                ),
                Constraint(
                    ("MATRIX", "TILE_M", "TILE_N", "TILE_K", "WAVES_M", "WAVES_N", "STAGES"),
                    lambda *values: _local_bytes(*values) <= local,
                    "more local memory than the device has",
                ),
                Constraint(
                    ("TILE_K", "SPLIT_K"),
                    lambda tile, split: split == 1 or split * tile < extents.depth,
                    "a split would have nothing to sum",
                ),
                Constraint(
                    ("SPLIT_K",),
                    lambda split: split == 1 or _can_split(extents, split),
                    "more workspace or blocks than are reasonable",
                ),
            ),
        )

    def plan(
        self, problem: ConvProblem, config: Config, alpha: float = 1.0, beta: float = 0.0
    ) -> Plan:
        """One launch; a second adds up the parts of a split."""
        extents = extents_of(problem)
        steps = -(-extents.depth // config["TILE_K"])
        steps_of_split = max(1, -(-steps // config["SPLIT_K"]))
        splits = max(1, -(-steps // steps_of_split))
        sizes = _pack_sizes(problem, extents, steps_of_split, alpha, beta)
        common = (
            *conv_macros(problem),
            ("NDIM", problem.ndim),
            ("CHANNELS_LAST", int(is_channels_last(problem))),
        )
        vectors = _vectors(problem)
        wave = _WARPGROUP if config["MATRIX"] == _WGMMA_ROWS else config["WAVE"]
        macros = (
            *common,
            *vectors.items(),
            *((name, config[name]) for name in config if name not in ("SPLIT_K", "WAVE")),
            ("WAVE", wave),
            ("THREADS", config["WAVES_M"] * config["WAVES_N"] * wave),
            ("ONE_TAP", _has_one_tap(problem, extents, config["TILE_K"])),
            ("POINTWISE", int(problem.direction == "W" and _is_pointwise(problem))),
            ("PARTIAL", int(splits > 1)),
        )
        source, other, output = _TENSORS[problem.direction]
        tiles = -(-extents.rows // config["TILE_M"]) * -(-extents.columns // config["TILE_N"])
        launch = Launch(
            KernelSource(_FILE, "conv_matrix_core", macros),
            (tiles, problem.groups, splits * extents.classes),
            (source, other, output, "bias", Workspace() if splits > 1 else "bias", sizes),
        )
        if splits == 1:
            return Plan((launch,))
        # Of few splits one thread adds all, so that more outputs are added up at once.
        shares = 8 if splits >= 16 else 1
        macros = (
            *common,
            ("VECTOR_C", vectors["VECTOR_C"]),
            ("WAVE", config["WAVE"]),
            ("SHARES", shares),
            ("THREADS", _SUM_THREADS * shares),
            ("PARTIAL", 2),
        )
        total = Launch(
            KernelSource(_FILE, "conv_matrix_core_sum", macros),
            (
                -(-extents.rows * -(-extents.columns // CHUNK) // _SUM_THREADS),
                problem.groups,
                extents.classes,
            ),
            (Workspace(), output, "bias", sizes, pack(splits)),
        )
        return Plan((launch, total), align(splits * extents.partial_bytes))


def _has_one_tap(problem: ConvProblem, extents: Extents, tile_k: int) -> int:
    """Whether all chunks of a step are of one tap (F, B)."""
    vectors = _vectors(problem)
    whole = vectors["VECTOR_A"] and vectors["VECTOR_B"] and extents.tap_depth % tile_k == 0
    return int(problem.direction != "W" and bool(whole))


def _is_pointwise(problem: ConvProblem) -> bool:
    """Whether places of x and y are the same."""
    return max(problem.filter_size) == 1 and max(problem.stride) == 1 and max(problem.padding) == 0


def _vectors(problem: ConvProblem) -> dict[str, int]:
    """Macros that say whose chunks are whole and contiguous."""
    last = is_channels_last(problem)
    x = int(last and problem.in_channels // problem.groups % 8 == 0)
    y = int(last and problem.out_channels // problem.groups % 8 == 0)
    a, b, c = {"F": (x, x, y), "B": (y, x, x), "W": (y, x, x)}[problem.direction]
    return {"VECTOR_A": a, "VECTOR_B": b, "VECTOR_C": c}


def _pack_sizes(
    problem: ConvProblem, extents: Extents, steps_of_split: int, alpha: float, beta: float
) -> bytes:
    """Pack the struct Sizes of the kernel."""
    backward = problem.direction == "B"
    in_group = problem.in_channels // problem.groups
    out_group = problem.out_channels // problem.groups
    x, w, y = tensors(problem)[:3]
    axes = zip(
        in_3d(problem.in_size, 1),
        in_3d(problem.out_size, 1),
        in_3d(row_grid(problem), 1),
        in_3d(problem.filter_size, 1),
        in_3d(problem.stride, 1),
        in_3d(problem.padding, 0),
        in_3d(problem.dilation, 1),
        strict=True,
    )
    numbers: list[int] = []
    for size, out, rows, taps, stride, pad, dilation in axes:
        step = hop(stride, dilation) if backward else 1
        hits = -(-taps // step)
        numbers += (
            (out, size, 1, -(step * dilation // stride))
            if backward
            else (*(size, size, stride, dilation),)
        )
        numbers += (pad, dilation, stride, taps, step, hits, rows)
        numbers += (*fast_divisor(rows), *fast_divisor(hits), *fast_divisor(max(1, hits - 1)))
    chunks = -(-(out_group if backward else in_group) // CHUNK)
    strides = in_3d(problem.stride, 1)
    return pack(
        *numbers,
        *(problem.batch * prod(row_grid(problem)), in_group, out_group),
        *(problem.groups, extents.classes),
        *(strides[1:] if backward else (1, 1)),
        *(chunks, steps_of_split, *fast_divisor(chunks)),
        *_strides(x.strides),
        *_strides(y.strides),
        *(w.strides[0], w.strides[1], w.strides[-1]),
        *(float(alpha), float(beta)),
    )


def _strides(strides: tuple[int, ...]) -> tuple[int, ...]:
    """Order as images, depth, height, width, channels."""
    images, channels, *space = strides
    return (images, *in_3d(tuple(space), 0), channels)


def _matrix_shapes(device: DeviceProperties, is_async: bool) -> tuple[int, ...]:
    """Rows that the matrix cores of a device multiply at once."""
    if device.backend == "hip":
        return (16, 32)
    return (16, _WGMMA_ROWS) if is_async and device.arch == _WGMMA_ARCH else (16,)


def _columns_fit(matrix: int, tile: int, waves: int) -> bool:
    if matrix != _WGMMA_ROWS:
        return tile % (waves * matrix) == 0
    # A wave's columns are whole blocks of a tile, or all there are.
    return tile // waves >= (64 if waves > 1 else 32)


def _can_split(extents: Extents, split: int) -> bool:
    return split * extents.partial_bytes <= _MAX_WORKSPACE and split * extents.classes <= _MAX_GRID


def _fits_registers(
    device: DeviceProperties,
    is_async: bool,
    matrix: int,
    m: int,
    n: int,
    k: int,
    waves_m: int,
    waves_n: int,
    wave: int,
) -> bool:
    if matrix == _WGMMA_ROWS:
        wave = _WARPGROUP
    threads = waves_m * waves_n * wave
    if threads > min(512, device.max_threads):
        return False
    sums = m * n // threads
    # 16 deep, a lane holds this many pairs of elements of A and B; wgmma reads local memory.
    operands = 0 if matrix == _WGMMA_ROWS else (m // waves_m + n // waves_n) * 16 // wave // 2
    fetched = 0 if is_async else -(-m * k // 8 // threads) + -(-n * k // 8 // threads)
    needed = sums + operands + 4 * fetched + _OTHER_REGISTERS
    return (
        sums <= _MAX_SUMS
        and fetched <= _MAX_FETCHED
        and needed * threads <= _REGISTERS[device.backend]
    )


def _local_bytes(
    matrix: int, m: int, n: int, k: int, waves_m: int, waves_n: int, stages: int
) -> int:
    tiles = stages * (m + n) * k * 2
    sums = waves_m * waves_n * matrix * (n // waves_n + 4) * 4
    return max(tiles, sums)


@lru_cache(maxsize=1024)
def _default(problem: ConvProblem, device: DeviceProperties) -> Mapping[str, int]:
    vectors = _vectors(problem)
    is_async = bool(device.backend == "cuda" and vectors["VECTOR_A"] and vectors["VECTOR_B"])
    is_wide = _WGMMA_ROWS in _matrix_shapes(device, is_async)
    matrix = _WGMMA_ROWS if is_wide else 16

    def fits(tile: Tile) -> bool:
        sizes = (tile.m, tile.n, tile.k, tile.waves_m, tile.waves_n, device.wave_size)
        return _fits_registers(device, is_async, matrix, *sizes)

    tile, split = best_tile(
        extents_of(problem),
        device,
        is_wide=is_wide,
        is_async=is_async,
        fits=fits,
        max_workspace=_MAX_WORKSPACE,
        max_grid=_MAX_GRID,
    )
    return {
        "MATRIX": matrix,
        "TILE_M": tile.m,
        "TILE_N": tile.n,
        "TILE_K": tile.k,
        "WAVES_M": tile.waves_m,
        "WAVES_N": tile.waves_n,
        "STAGES": tile.stages,
        "BAND": 4,
        "SPLIT_K": split,
        "WAVE": device.wave_size,
    }


SOLVER = MatrixCoreConv()
