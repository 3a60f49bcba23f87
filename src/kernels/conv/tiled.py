"""Convolution solvers that are one tiled matrix multiplication."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.conv.solver import ConvSolver
from foretune.kernels.gemm.tiling import Matrices, adds_atomically, tile_plan, tile_space
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import Plan
from foretune.kernels.space import Config, Space


class TiledConv(ConvSolver):
    """Has the configs and the launches of the multiplication that it sees a problem as."""

    @abstractmethod
    def matrices(self, problem: ConvProblem) -> Matrices:
        """See a problem as a matrix multiplication."""

    def space(self, problem: ConvProblem, device: DeviceProperties) -> Space:
        """Tiles, threads' tiles, vectors, stages, shares of K."""
        return tile_space(self.matrices(problem), device)

    def bounds(self, problem: ConvProblem, device: DeviceProperties) -> Space:
        """Give the same configs without choosing a default."""
        return tile_space(self.matrices(problem), device, has_default=False)

    def plan(
        self, problem: ConvProblem, config: Config, alpha: float = 1.0, beta: float = 0.0
    ) -> Plan:
        """One launch, and one or two more for shares of K."""
        return tile_plan(self.matrices(problem), config, alpha, beta)

    def adds_atomically(
        self,
        problem: ConvProblem,  # noqa: ARG002
        config: Mapping[str, int],
    ) -> bool:
        """Say whether shares of K are added atomically."""
        return adds_atomically(config)
