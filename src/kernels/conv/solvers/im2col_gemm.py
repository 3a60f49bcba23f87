"""Convolutions by a column matrix in the workspace and a plain matrix multiplication."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from foretune.kernels.conv.arguments import (
    DTYPES,
    conv_macros,
    is_channels_last,
    tensors,
)
from foretune.kernels.conv.gather import gather
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.conv.solver import ConvSolver
from foretune.kernels.gemm.strided import Operand, Strides, strided_matrices
from foretune.kernels.gemm.tiling import Matrices, adds_atomically, tile_plan, tile_space
from foretune.kernels.problem import DTYPE_BYTES
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import KernelSource, Launch, Plan, Workspace, align, pack
from foretune.kernels.space import Config, Space, Tunable

#: Bytes of the column matrix: at most, and by default if one image allows.
_MOST_BYTES, _USUAL_BYTES = 1 << 30, 1 << 28
#: Pieces of the batch at most.
_MOST_PIECES = 64
_THREADS, _TAPS = 128, 8
_MAX_GRID = 65535


class Im2colGemmConv(ConvSolver):
    """Some images at a time are unfolded, then multiplied."""

    id = "ConvIm2colGemm"

    def why_not_conv(self, problem: ConvProblem, device: DeviceProperties) -> str | None:
        """Say why not: strides backward, a matrix beyond the workspace."""
        if problem.direction == "B" and set(problem.stride) != {1}:
            return "takes no stride backward; ConvImplicitGemm does"
        fewest = -(-problem.batch // _MOST_PIECES)
        nbytes = _columns_bytes(problem, fewest)
        if nbytes > _MOST_BYTES:
            return f"the column matrix of {fewest} images has {nbytes} bytes, 1 GiB is the limit"
        if problem.groups > _MAX_GRID or gather(problem).taps > _TAPS * _MAX_GRID:
            return "more groups or taps than a grid has blocks"
        return None

    def space(self, problem: ConvProblem, device: DeviceProperties) -> Space:
        """Images at a time, and what a matrix multiplication has."""
        return self._space(problem, device, has_default=True)

    def bounds(self, problem: ConvProblem, device: DeviceProperties) -> Space:
        """Give the same configs without choosing a default."""
        return self._space(problem, device, has_default=False)

    def _space(self, problem: ConvProblem, device: DeviceProperties, *, has_default: bool) -> Space:
        images = tuple(
            2**power
            for power in range(problem.batch.bit_length() + 1)
            if 2**power < 2 * problem.batch
            and _MOST_PIECES * 2**power >= problem.batch
            and _columns_bytes(problem, min(2**power, problem.batch)) <= _MOST_BYTES
        ) or (problem.batch,)
        usual = [n for n in images if _columns_bytes(problem, n) <= _USUAL_BYTES]
        default = max(usual, default=images[0])
        matrices = _matrices(problem, 0, min(default, problem.batch), Workspace(0))
        tiles = tile_space(matrices, device, has_default=has_default)
        return Space((Tunable("IMAGES", images, default), *tiles.tunables), tiles.constraints)

    def plan(
        self, problem: ConvProblem, config: Config, alpha: float = 1.0, beta: float = 0.0
    ) -> Plan:
        """Two launches for each piece of the batch, more for shares of K."""
        at_once = min(config["IMAGES"], problem.batch)
        free = align(_columns_bytes(problem, at_once))
        launches: list[Launch] = []
        workspace = free
        for first in range(0, problem.batch, at_once):
            count = min(at_once, problem.batch - first)
            # Pieces of a gradient of w add up; all others have outputs of their own.
            is_added = problem.direction == "W" and first > 0
            matrices = _matrices(problem, first, count, Workspace(0))
            piece = tile_plan(matrices, config, alpha, 1.0 if is_added else beta, free)
            launches += (_unfold(problem, first, count), *piece.launches)
            workspace = max(workspace, piece.workspace)
        return Plan(tuple(launches), workspace)

    def adds_atomically(self, problem: ConvProblem, config: Mapping[str, int]) -> bool:
        """Say whether shares of K are added atomically."""
        return adds_atomically(config)


def _columns_bytes(problem: ConvProblem, images: int) -> int:
    pixels = prod(problem.in_size if problem.direction == "B" else problem.out_size)
    channels = problem.out_channels if problem.direction == "B" else problem.in_channels
    return images * pixels * channels * prod(problem.filter_size) * DTYPE_BYTES[problem.dtype]


def _unfold(problem: ConvProblem, first: int, count: int) -> Launch:
    view = gather(problem, count)
    macros = (
        *conv_macros(problem),
        ("NDIM", problem.ndim),
        ("CHANNELS_LAST", int(is_channels_last(problem))),
        ("TAPS", _TAPS),
        ("THREADS", _THREADS),
    )
    return Launch(
        KernelSource("conv/solvers/im2col_gemm.cl", "gather_columns", macros),
        (-(-view.pixels // _THREADS), -(-view.taps // _TAPS), problem.groups),
        (
            *(view.gathered.name, Workspace(0), view.geometry),
            pack(first * view.gathered.strides[0]),
        ),
    )


def _matrices(problem: ConvProblem, first: int, count: int, columns: Workspace) -> Matrices:
    x, w, y = tensors(problem)[:3]
    view = gather(problem, count)
    is_wrw, is_backward = problem.direction == "W", problem.direction == "B"
    filters = problem.out_channels // problem.groups
    places = prod(problem.filter_size)
    group_of_w, matrix = filters * w.strides[0], view.taps * view.pixels
    # The tensor that has the pixels: its images and pixels are one axis in two parts.
    tensor = x if is_backward else y
    by_pixels = Operand(
        tensor.name,
        Strides(tensor.strides[1]),
        Strides(tensor.strides[-1], tensor.strides[0]),
        view.m * tensor.strides[1],
        first * tensor.strides[0],
    )
    pixels = view.pixels // count
    if is_wrw:
        a, c = by_pixels, Operand("w", Strides(w.strides[0]), Strides(1), group_of_w)
        b = Operand(columns, Strides(1, pixels), Strides(view.pixels), matrix)
        sizes, k_inner, n_inner = (view.m, view.taps, view.pixels), pixels, 0
        size = w.size
    else:
        weights, k_inner = Strides(1), 0
        if is_backward and is_channels_last(problem):
            weights, k_inner = Strides(w.strides[0], w.strides[-1]), view.channels
        elif is_backward:
            weights, k_inner = Strides(1, w.strides[0]), places
        inner = k_inner or view.taps
        a = Operand("w", Strides(w.strides[1 if is_backward else 0]), weights, group_of_w)
        b = Operand(columns, Strides(view.pixels, inner * view.pixels), Strides(1, pixels), matrix)
        c = by_pixels
        sizes, n_inner = (view.m, view.pixels, view.taps), pixels
        size = count * tensor.strides[0]
    return strided_matrices(
        ("DTYPE", DTYPES[problem.dtype]),
        sizes,
        a,
        b,
        c,
        parts=problem.groups,
        k_inner=k_inner,
        n_inner=n_inner,
        size=size,
        bias=(problem.out_channels, y.strides[1]),
    )


SOLVER = Im2colGemmConv()
