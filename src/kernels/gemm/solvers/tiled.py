"""Tiled matrix multiplication on plain arithmetic."""

from __future__ import annotations

from collections.abc import Mapping

from foretune.kernels.gemm.arguments import dtype_macro, tensors
from foretune.kernels.gemm.problem import GemmProblem
from foretune.kernels.gemm.strided import Operand, Strides, strided_matrices
from foretune.kernels.gemm.tiling import Matrices, adds_atomically, tile_plan, tile_space
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import Plan, Solver
from foretune.kernels.space import Config, Space

_MAX_PARTS = 65535
_ELEMENTS = 2**31 - 1


class TiledGemm(Solver[GemmProblem]):
    """Tiles through local memory, sums in registers; shares of K fill small grids."""

    id = "GemmTiled"

    def why_not(self, problem: GemmProblem, device: DeviceProperties) -> str | None:
        """Say why not: too many matrices, or offsets beyond 32 bits."""
        if problem.batch > _MAX_PARTS:
            return f"takes {_MAX_PARTS} matrices at most, not {problem.batch}"
        largest = max(tensor.size for tensor in tensors(problem))
        if largest > _ELEMENTS:
            return f"offsets have 32 bits, a tensor has {largest} elements"
        return None

    def space(self, problem: GemmProblem, device: DeviceProperties) -> Space:
        """Tiles, threads' tiles, vectors, stages, shares of K."""
        return tile_space(_matrices(problem), device)

    def bounds(self, problem: GemmProblem, device: DeviceProperties) -> Space:
        """Give the same configs without choosing a default."""
        return tile_space(_matrices(problem), device, has_default=False)

    def plan(
        self, problem: GemmProblem, config: Config, alpha: float = 1.0, beta: float = 0.0
    ) -> Plan:
        """One launch, and one or two more for shares of K."""
        return tile_plan(_matrices(problem), config, alpha, beta)

    def adds_atomically(self, problem: GemmProblem, config: Mapping[str, int]) -> bool:
        """Say whether shares of K are added atomically."""
        return adds_atomically(config)


def _matrices(problem: GemmProblem) -> Matrices:
    described = tensors(problem)
    a, b, c = (
        Operand(
            tensor.name, Strides(tensor.strides[1]), Strides(tensor.strides[2]), tensor.strides[0]
        )
        for tensor in described
    )
    return strided_matrices(
        dtype_macro(problem),
        (problem.m, problem.n, problem.k),
        a,
        b,
        c,
        parts=problem.batch,
        size=described[2].size,
    )


SOLVER = TiledGemm()
