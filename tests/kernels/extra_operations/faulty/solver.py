from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import KernelSource, Launch, Plan, Solver
from foretune.kernels.space import Config, Space, Tunable

SOURCE = Path(__file__).with_name("faulty.cl")
KINDS = {
    "FaultyGood": 0,
    "FaultyNaive": 0,
    "FaultyCrashing": 1,
    "FaultyHanging": 2,
    "FaultyWrong": 3,
    "FaultySpoiling": 4,
    "FaultySlow": 5,
    "FaultyUnbuildable": 6,
    "FaultyHungry": 0,
}


class FaultySolver(Solver[Any]):
    """One of `KINDS`."""

    def __init__(self, solver_id: str, configs: tuple[int, ...] = (64,)) -> None:
        self.id = solver_id  # type: ignore[misc]
        self._configs = configs

    def why_not(self, problem: Any, device: DeviceProperties) -> str | None:
        is_harmless = self.id in ("FaultyGood", "FaultyNaive")
        return "spares FP16" if problem.dtype == "FP16" and not is_harmless else None

    def space(self, problem: Any, device: DeviceProperties) -> Space:
        return Space((Tunable("THREADS", self._configs, self._configs[-1]),))

    def plan(self, problem: Any, config: Config, alpha: float = 1.0, beta: float = 0.0) -> Plan:
        dtype = {"FP32": 0, "FP16": 1, "BF16": 2}[problem.dtype]
        macros = (("KIND", KINDS[self.id]), ("DTYPE", dtype), ("THREADS", config["THREADS"]))
        count = problem.batch * problem.size
        launch = Launch(
            KernelSource(str(SOURCE), "faulty", macros),
            (-(-count // config["THREADS"]), 1, 1),
            ("x", "y", struct.pack("<q", count)),
        )
        return Plan((launch,), 1 << 45 if self.id == "FaultyHungry" else 0)
