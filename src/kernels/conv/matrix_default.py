"""Default tiles of the convolution on matrix cores: an estimate of time, without search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil

from foretune.kernels.conv.matrix_extents import Extents
from foretune.kernels.runtime.properties import DeviceProperties

# Constants of the estimate, fitted to 70 problems with 20 tiles each on an H200, in microseconds:
# for each multiplication and addition of a block, for each byte that it loads and each element that
# it stores, for a step in depth, before the first and after the last step, for each split and for
# each byte of its sums.
_PER_PRODUCT = 1 / (2048 * 1.7e3)
_PER_BYTE_LOADED = 1.5e-5
_PER_STORE = 1.4e-4
_PER_STEP = 0.125
_START = 2.0
_PER_SPLIT = 0.05
_PER_BYTE_OF_SPLIT = 0.9e-6
#: A kernel more that adds up a split.
_SUM_KERNEL = 2.5
#: mma.sync and MFMA against wgmma.
_SMALL_MATRIX = 1.6
_MAX_SPLIT = 256


@dataclass(frozen=True)
class Tile:
    """Sizes of a block's work.

    Parameters
    ----------
    m, n, k : int
        Rows, columns and depth.
    waves_m, waves_n : int
        Waves along rows and columns.
    threads : int
        Of the block.
    stages : int
        Tiles in local memory.
    is_wide : bool
        Whether wgmma multiplies.
    """

    m: int
    n: int
    k: int
    waves_m: int
    waves_n: int
    threads: int
    stages: int
    is_wide: bool

    @property
    def local_bytes(self) -> int:
        """Local memory for tiles, or for the sums on their way out."""
        rows = self.threads // 2 if self.is_wide else 16 * self.waves_m * self.waves_n
        sums = rows * (self.n // self.waves_n + 4) * 4
        return max(self.stages * (self.m + self.n) * self.k * 2, sums)


def best_tile(
    extents: Extents,
    device: DeviceProperties,
    *,
    is_wide: bool,
    is_async: bool,
    fits: Callable[[Tile], bool],
    max_workspace: int,
    max_grid: int,
) -> tuple[Tile, int]:
    """Choose the tile and the split of depth with the least estimated time.

    Parameters
    ----------
    extents : Extents
    device : DeviceProperties
    is_wide : bool
        Whether wgmma multiplies.
    is_async : bool
        Whether tiles are copied without passing through registers.
    fits : callable
        Whether a tile's block has enough registers.
    max_workspace, max_grid : int
        Bytes and blocks that a split may take.
    """
    choices = (
        (_microseconds(extents, tile, split, device), tile, split)
        for tile in _tiles(extents, device, is_wide, is_async)
        if fits(tile)
        for split in _splits(extents, tile, device, max_workspace, max_grid)
    )
    _, tile, split = min(choices, key=lambda choice: choice[0])
    return tile, split


def _tiles(
    extents: Extents, device: DeviceProperties, is_wide: bool, is_async: bool
) -> Iterator[Tile]:
    local = max(device.local_memory, device.dynamic_local_memory)
    for m in (64, 128, 256) if is_wide else (16, 32, 64, 128):
        for n in (32, 64, 128, 256) if is_wide else (16, 32, 64, 128):
            # Twice as large as the matrix would be idle work; 128 sums are a thread's most.
            if (m > 64 and m >= 2 * extents.rows) or (n > 32 and n >= 2 * extents.columns):
                continue
            waves_m = min(2, m // (64 if is_wide else 16))
            waves_n = 1 if is_wide else min(2, n // 16)
            threads = waves_m * waves_n * (128 if is_wide else device.wave_size)
            tile = Tile(
                *(m, n, 64 if is_wide else 32, waves_m, waves_n, threads),
                *((4 if is_wide else 3) if is_async else 1, is_wide),
            )
            if m * n <= 128 * threads and tile.local_bytes <= local:
                yield tile


def _splits(
    extents: Extents, tile: Tile, device: DeviceProperties, max_workspace: int, max_grid: int
) -> Iterator[int]:
    split, blocks = 1, _blocks(extents, tile)
    yield split
    while (
        blocks * split < 4 * device.compute_units
        and 2 * split <= _MAX_SPLIT
        and 4 * split * tile.k < extents.depth
        and 2 * split * extents.partial_bytes <= max_workspace
        and 2 * split * extents.classes <= max_grid
    ):
        split *= 2
        yield split


def _blocks(extents: Extents, tile: Tile) -> int:
    tiles = -(-extents.rows // tile.m) * -(-extents.columns // tile.n)
    return tiles * extents.groups * extents.classes


def _microseconds(extents: Extents, tile: Tile, split: int, device: DeviceProperties) -> float:
    """Estimate: blocks of one compute unit overlap until its matrix cores or loads are busy."""
    steps = -(-extents.depth // tile.k)
    steps_of_split = max(1, -(-steps // split))
    splits = max(1, -(-steps // steps_of_split))
    blocks = _blocks(extents, tile) * splits
    local = max(device.local_memory, device.dynamic_local_memory)
    registers = (tile.m * tile.n // tile.threads + 64) * tile.threads
    together = max(1, min(local // (tile.local_bytes + 1024), 65536 // registers))
    together = min(together, -(-blocks // device.compute_units))
    rate = 1.0 if tile.is_wide else _SMALL_MATRIX
    products = tile.m * tile.n * tile.k * _PER_PRODUCT * rate
    step = max(products, (tile.m + tile.n) * tile.k * 2 * _PER_BYTE_LOADED)
    stores = tile.m * tile.n * _PER_STORE
    busy = steps_of_split * step + stores
    alone = busy + _START + steps_of_split * _PER_STEP
    rounds = blocks / (device.compute_units * together)
    # Of few rounds the last one counts in full.
    time = (ceil(rounds) if rounds < 4 else rounds) * max(alone, together * busy)
    if splits > 1:
        time += _SUM_KERNEL
        time += splits * (_PER_SPLIT + extents.partial_bytes * _PER_BYTE_OF_SPLIT)
    return time
