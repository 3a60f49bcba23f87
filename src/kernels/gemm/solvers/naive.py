"""Naive matrix multiplication: always applicable, and the reference on the device."""

from __future__ import annotations

import struct

from foretune.kernels.gemm.arguments import dtype_macro, tensors
from foretune.kernels.gemm.problem import GemmProblem
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import KernelSource, Launch, Plan, Solver, pack
from foretune.kernels.space import Config, Space, Tunable

#: Blocks at most; each thread then computes several elements.
_MAX_BLOCKS = 1 << 16


class NaiveGemm(Solver[GemmProblem]):
    """One thread for each element of the output."""

    id = "GemmNaive"

    def why_not(self, problem: GemmProblem, device: DeviceProperties) -> str | None:
        """Nothing."""
        return None

    def space(self, problem: GemmProblem, device: DeviceProperties) -> Space:
        """Block sizes."""
        sizes = tuple(size for size in (64, 128, 256) if size <= device.max_threads)
        return Space((Tunable("THREADS", sizes, sizes[0]),))

    def plan(
        self, problem: GemmProblem, config: Config, alpha: float = 1.0, beta: float = 0.0
    ) -> Plan:
        """One launch."""
        macros = (dtype_macro(problem), ("THREADS", config["THREADS"]))
        described = tensors(problem)
        strides = [stride for tensor in described for stride in tensor.strides]
        sizes = (problem.m, problem.n, problem.k, problem.batch)
        launch = Launch(
            KernelSource("gemm/solvers/naive.cl", "gemm_naive", macros),
            (min(_MAX_BLOCKS, -(-described[2].size // config["THREADS"])), 1, 1),
            (
                *("a", "b", "c"),
                pack(*sizes, float(alpha), float(beta)),
                struct.pack("<9q", *strides),
            ),
        )
        return Plan((launch,))


SOLVER = NaiveGemm()
