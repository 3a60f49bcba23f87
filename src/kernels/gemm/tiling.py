"""Configs and launches of the tiled matrix multiplication (tile.h), whoever describes matrices.

A solver says by `Matrices` what is multiplied and how it lies in memory; this module gives the
space of configs, a default chosen by arithmetic alone, and the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from foretune.kernels.gemm.split_k import Shares
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import (
    Argument,
    KernelSource,
    Launch,
    Plan,
    Workspace,
    fast_divisor,
    pack,
)
from foretune.kernels.space import Constraint, Space, Tunable

#: Static local memory of a block at most; CUDA gives no more without asking.
_LOCAL_MEMORY = 48 << 10
#: Bytes of one row's entry in the table of rows, in two and three dimensions.
_PLACE_BYTES = 32
#: Bytes of shares of K in the workspace at most.
_SHARES_BYTES = 1 << 30
#: Sums of a thread block that its registers hold.
_SUMS = 1 << 14
#: Macros of a config that the kernel source reads.
_MACROS = (
    *("TILE_M", "TILE_N", "TILE_K", "THREAD_M", "THREAD_N"),
    *("PASSES", "CHUNK", "STAGES", "PAD", "UNROLL_K"),
)
#: Theirs where a config doesn't say, on GPUs and on processors.
_GPU_MACROS = {"PASSES": 1, "CHUNK": 4}
_PROCESSOR_MACROS = {"CHUNK": 1, "STAGES": 1, "PAD": 0}


@dataclass(frozen=True)
class Matrices:
    """What is multiplied, in the words of place.h.

    Parameters
    ----------
    file : str
        Kernel source that includes tile.h.
    macros : tuple of (str, int)
        Its macros, apart from the config's.
    geometry : bytes
        Its struct Geometry.
    a, b, c : str or Workspace
        The arguments.
    m, n, k : int
        Sizes of the largest part.
    parts : int
        Matrices of one launch: groups, batches, classes.
    size, c_first : int
        Elements of all C, and those before them in their tensor.
    a_along_k, b_along_k : bool
        Whether elements along K are neighbours in memory, rather than those along M or N.
    a_vector, b_vector : int
        Elements that can be read at once there: 1 or 4.
    m_is_fastest : bool
        Whether elements along M are neighbours in C.
    c_vector : int
        Elements that can be written at once: 1 or 4.
    channels, inner : int
        For the bias: its length, and elements of C between two of its channels.
    """

    file: str
    macros: tuple[tuple[str, int], ...]
    geometry: bytes
    a: str | Workspace
    b: str | Workspace
    c: str | Workspace
    m: int
    n: int
    k: int
    parts: int
    size: int
    a_along_k: bool
    b_along_k: bool
    a_vector: int
    b_vector: int
    m_is_fastest: bool
    c_vector: int
    c_first: int = 0
    channels: int = 1
    inner: int = 1

    def tiles(self, tile_m: int, tile_n: int) -> int:
        """Tiles of the output."""
        return -(-self.m // tile_m) * -(-self.n // tile_n) * self.parts


def adds_atomically(config: Mapping[str, int]) -> bool:
    """Whether shares of K are added in the order in which blocks happen to end."""
    return bool(config["ATOMIC"])


def tile_space(matrices: Matrices, device: DeviceProperties, *, has_default: bool = True) -> Space:
    """List the configs for these matrices.

    Parameters
    ----------
    matrices : Matrices
    device : DeviceProperties
    has_default : bool, default True
        Whether the default is chosen well, which takes as long as all the rest.
    """
    is_processor = device.arch == "cpu"
    values = _PROCESSOR_VALUES if is_processor else _GPU_VALUES
    choose = _processor_default if is_processor else _gpu_default
    default = choose(matrices, device) if has_default else {}
    vector = 1 if is_processor else max(matrices.a_vector, matrices.b_vector)
    vectors = (1, 4) if vector > 1 else (1,)
    splits = tuple(2**power for power in range(9) if 2**power <= max(1, matrices.k // 8))
    tunables = [
        _tunable(name, choices, default.get(name, choices[0]))
        for name, choices in {
            **values,
            "VECTOR": vectors,
            "SPLIT_K": splits,
            "ATOMIC": (0, 1) if len(splits) > 1 else (0,),
            "M_FIRST": (0, 1),
        }.items()
    ]
    return Space(tuple(tunables), tuple(_constraints(matrices, device)))


def _tunable(name: str, choices: tuple[int, ...], default: int) -> Tunable:
    values = choices if default in choices else tuple(sorted({*choices, default}))
    return Tunable(name, values, default)


_GPU_VALUES = {
    "TILE_M": (8, 16, 32, 64, 128),
    "TILE_N": (32, 64, 128, 256),
    "TILE_K": (8, 16, 32),
    "THREAD_M": (4, 8),
    "THREAD_N": (4, 8, 16),
    "STAGES": (1, 2),
    "PAD": (0, 4),
    "UNROLL_K": (8, 16),
}
# A compiler for processors makes vectors of neighbouring threads, so all of them lie along N; a
# thread has whole columns of the tile, some rows at a time.
_PROCESSOR_VALUES = {
    "TILE_M": (8, 16, 32, 64),
    "TILE_N": (16, 32, 64, 128),
    "TILE_K": (16, 32, 64, 128),
    "THREAD_N": (1, 2),
    "PASSES": (1, 2, 4, 8, 16),
    "UNROLL_K": (1, 4),
}


def _constraints(matrices: Matrices, device: DeviceProperties) -> Iterator[Constraint]:
    yield from (_processor_constraints if device.arch == "cpu" else _gpu_constraints)(device)
    yield Constraint(
        ("TILE_K", "SPLIT_K"),
        lambda k, split: split <= -(-matrices.k // k),
        "more shares of K than steps",
    )
    yield Constraint(
        ("TILE_M", "TILE_N", "SPLIT_K"),
        lambda m, n, split: split == 1 or _needs_shares(matrices, device, m, n, split),
        "the grid fills the device without more shares of K",
    )
    yield Constraint(
        ("SPLIT_K", "ATOMIC"),
        lambda split, atomic: (
            split > 1 if atomic else split == 1 or 4 * split * matrices.size <= _SHARES_BYTES
        ),
        "nothing to add atomically, or shares of K beyond 1 GiB",
    )


def _gpu_constraints(device: DeviceProperties) -> Iterator[Constraint]:
    limit, most = min(device.local_memory, _LOCAL_MEMORY), min(512, device.max_threads)

    def threads(m: int, n: int, thread_m: int, thread_n: int) -> int:
        return m // thread_m * (n // thread_n)

    def fetches_evenly(m: int, n: int, k: int, thread_m: int, thread_n: int) -> bool:
        count = threads(m, n, thread_m, thread_n)
        return m * k % count == 0 and n * k % count == 0

    def fetches_little(m: int, n: int, k: int, thread_m: int, thread_n: int) -> bool:
        return (m + n) * k <= 36 * threads(m, n, thread_m, thread_n)

    tile = ("TILE_M", "TILE_N", "THREAD_M", "THREAD_N")
    deep = ("TILE_M", "TILE_N", "TILE_K", "THREAD_M", "THREAD_N")
    yield Constraint(
        tile,
        lambda *sizes: 32 <= threads(*sizes) <= most,
        f"fewer than 32 or more than {most} threads",
    )
    yield Constraint(("TILE_M", "TILE_N"), lambda m, n: m * n <= _SUMS, "more sums than registers")
    yield Constraint(deep, fetches_evenly, "threads don't fetch the same share of a tile")
    yield Constraint(deep, fetches_little, "a thread fetches more than 36 elements a step")
    yield Constraint(("TILE_K", "UNROLL_K"), lambda k, unroll: unroll <= k, "unrolls beyond a tile")
    yield Constraint(
        ("TILE_M", "TILE_N", "TILE_K", "STAGES", "PAD"),
        lambda m, n, k, stages, pad: (
            4 * stages * k * (m + n + 2 * pad) + 2 * k * _PLACE_BYTES <= limit
        ),
        "tiles don't fit into local memory",
    )


def _needs_shares(
    matrices: Matrices, device: DeviceProperties, tile_m: int, tile_n: int, split: int
) -> bool:
    return matrices.tiles(tile_m, tile_n) * split <= 32 * device.compute_units


def _processor_constraints(device: DeviceProperties) -> Iterator[Constraint]:
    yield Constraint(
        ("TILE_N", "THREAD_N"), lambda n, each: n // each <= 128, "more than 128 threads"
    )
    yield Constraint(
        ("TILE_M", "THREAD_N", "PASSES"),
        lambda m, n, passes: m % passes == 0 and 4 <= m // passes * n <= 16,
        "fewer than 4 sums in registers or more than 16",
    )
    yield Constraint(
        ("TILE_M", "TILE_N", "TILE_K"),
        lambda m, n, k: 4 * k * (m + n) + 4 * m * n + 2 * k * _PLACE_BYTES <= device.local_memory,
        "tiles don't fit into local memory",
    )


def _processor_default(matrices: Matrices, device: DeviceProperties) -> dict[str, int]:
    """Take tiles as large as leave every core two of them, else shares of K."""
    tile_m = _power_near(matrices.m, 8, 64)
    tile_n = _power_near(matrices.n, 16, 128)
    while tile_n > 32 and matrices.tiles(tile_m, tile_n) < 2 * device.compute_units:
        tile_n //= 2
    tiles = matrices.tiles(tile_m, tile_n)
    split = 1
    while tiles * split < device.compute_units and split * 256 <= matrices.k:
        split *= 2
    return {
        **{"TILE_M": tile_m, "TILE_N": tile_n, "TILE_K": 64, "THREAD_N": 2},
        **{"PASSES": tile_m // 4, "UNROLL_K": 4},
        **{"VECTOR": 1, "SPLIT_K": split, "ATOMIC": 0, "M_FIRST": 1},
    }


def _gpu_default(matrices: Matrices, device: DeviceProperties) -> dict[str, int]:
    """Take the tile and the split that a model of the grid finds fastest."""
    candidates = (
        (tile_m, tile_n, split)
        for tile_m in (8, 16, 32, 64, 128)
        for tile_n in _default_widths(tile_m, device)
        for split in (1, 2, 4, 8, 16, 32, 64, 128)
        if split == 1
        or (matrices.k >= 64 * split and _needs_shares(matrices, device, tile_m, tile_n, split))
    )
    tile_m, tile_n, split = min(
        candidates, key=lambda candidate: _modelled_cycles(matrices, device, *candidate)
    )
    thread_m, thread_n = _thread_tile(tile_m, tile_n, device)
    tile_k = 8 if tile_m == 8 or tile_n == 256 else 16
    return {
        **{"TILE_M": tile_m, "TILE_N": tile_n, "TILE_K": tile_k},
        **{"THREAD_M": thread_m, "THREAD_N": thread_n},
        **{"STAGES": 2, "PAD": 4, "UNROLL_K": tile_k},
        **{"VECTOR": max(matrices.a_vector, matrices.b_vector)},
        **{"SPLIT_K": split, "ATOMIC": 0, "M_FIRST": 1},
    }


def _default_widths(tile_m: int, device: DeviceProperties) -> tuple[int, ...]:
    if tile_m > 8:
        return (32, 64, 128)
    # On AMD's waves of 64 the widest needs more registers than a thread has.
    return (128,) if device.wave_size == 64 else (128, 256)


def _thread_tile(tile_m: int, tile_n: int, device: DeviceProperties) -> tuple[int, int]:
    """Give the sums of a thread such that a block has from 32 to 256 threads."""
    if tile_m == 8:
        return (4, 4) if device.wave_size == 64 else (8, 4)
    thread_m = 8 if tile_m * tile_n >= 64 * 64 and tile_m != 16 else 4
    thread_n = 8 if tile_n >= 64 and tile_m * tile_n >= 64 * 128 else 4
    return thread_m, thread_n


def _modelled_cycles(
    matrices: Matrices, device: DeviceProperties, tile_m: int, tile_n: int, split: int
) -> float:
    """Cycles of the busiest compute unit, roughly; what all candidates share is left out.

    The constants were fitted to times of an H200: the tiles that are best by the model take 1.04
    times as long as the best, in the geometric mean over 27 convolutions.
    """
    blocks = matrices.tiles(tile_m, tile_n) * split
    busiest = -(-blocks // device.compute_units)
    thread_m, thread_n = _thread_tile(tile_m, tile_n, device)
    threads = tile_m * tile_n // (thread_m * thread_n)
    depth = -(-matrices.k // split) + 16
    # 128 multiply-adds a cycle, less what a small tile spends on fetching.
    cycles = tile_m * tile_n / 128 * (1 + 16 / tile_m + 16 / tile_n) * depth
    if thread_m * thread_n < 32:
        cycles *= 1.2
    # A unit needs some 384 threads to be busy.
    idle = max(1.0, 384 / (busiest * threads))
    total = busiest * cycles * idle
    if split > 1:
        # Writing and reading the shares at 10 bytes a cycle and unit, and one more launch.
        total += 8 * split * matrices.size / (10 * device.compute_units) + 2000
    return total


def _power_near(size: int, least: int, most: int) -> int:
    """Smallest power of two that covers a size, within limits."""
    return min(most, max(least, 1 << (size - 1).bit_length()))


def tile_plan(
    matrices: Matrices,
    config: Mapping[str, int],
    alpha: float,
    beta: float,
    first_free: int = 0,
) -> Plan:
    """Launch the multiplication, and what finishes shares of K.

    Parameters
    ----------
    matrices : Matrices
    config : mapping
    alpha, beta : float
    first_free : int, default 0
        Bytes at the start of the workspace that are somebody else's.
    """
    split, atomic = config["SPLIT_K"], config["ATOMIC"]
    shares = 0 if split == 1 else 2 if atomic else 1
    tiles_m = -(-matrices.m // config["TILE_M"])
    tiles_n = -(-matrices.n // config["TILE_N"])
    fast = tiles_m if config["M_FIRST"] else tiles_n
    tiling = pack(
        *fast_divisor(fast),
        *(fast, config["M_FIRST"], split, matrices.size),
        first_free // 4 if shares else matrices.c_first,
        *(float(alpha), float(beta)),
    )
    output: Argument = Workspace() if shares else matrices.c
    kernel = KernelSource(matrices.file, "tiled_gemm", _macros(matrices, config, shares))
    grid = (tiles_m * tiles_n, matrices.parts, split)
    multiply = Launch(
        kernel, grid, (matrices.a, matrices.b, output, "bias", matrices.geometry, tiling)
    )
    if not shares:
        return Plan((multiply,), first_free)
    kept = 1 if atomic else split
    sums = Shares(
        matrices.c,
        dict(matrices.macros)["DTYPE"],
        *(matrices.size, kept, alpha, beta),
        sums_first=first_free // 4,
        output_first=matrices.c_first,
        channels=matrices.channels,
        inner=matrices.inner,
    )
    launches = (*([sums.clear()] if atomic else []), multiply, sums.sum())
    return Plan(launches, first_free + 4 * kept * matrices.size)


def _macros(
    matrices: Matrices, config: Mapping[str, int], shares: int
) -> tuple[tuple[str, int], ...]:
    is_processor = "PASSES" in config
    # On processors, where threads lie along N alone, a thread has all rows of the tile.
    thread_m = config["TILE_M"] if is_processor else config["THREAD_M"]
    chosen = {
        **(_PROCESSOR_MACROS if is_processor else _GPU_MACROS),
        **config,
        "THREAD_M": thread_m,
    }
    threads_m, threads_n = config["TILE_M"] // thread_m, config["TILE_N"] // config["THREAD_N"]
    threads = threads_m * threads_n
    along_m = matrices.m_is_fastest and not is_processor
    fast, slow = (threads_m, threads_n) if along_m else (threads_n, threads_m)

    def vector(possible: int, tile: str) -> int:
        wanted = 1 if is_processor else min(possible, config["VECTOR"])
        return wanted if config[tile] * config["TILE_K"] % (threads * wanted) == 0 else 1

    return (
        *matrices.macros,
        *((name, chosen[name]) for name in _MACROS),
        ("A_VECTOR", vector(matrices.a_vector, "TILE_M")),
        ("B_VECTOR", vector(matrices.b_vector, "TILE_N")),
        ("A_ALONG_K", int(matrices.a_along_k and not is_processor)),
        ("B_ALONG_K", int(matrices.b_along_k and not is_processor)),
        ("LANES_ALONG_M", int(along_m)),
        ("FAST_LANES", max(min(fast, 8), 32 // slow)),
        ("STORE_VECTOR", matrices.c_vector if chosen["CHUNK"] == 4 else 1),
        ("SHARES", shares),
        ("THREADS", threads),
    )
