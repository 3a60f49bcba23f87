"""The convolution on matrix cores, run without any: OpenCL work-items play the lanes of a wave."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.registry import solver
from foretune.kernels.runtime.device import Kernel, open_device
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.runtime.source import whole_source
from foretune.kernels.solver import KernelSource, source_folder
from foretune.kernels.space import Config
from tests.kernels.conv_strategies import applicable_to
from tests.kernels.test_conv_contract import check_against_reference

SOLVER = solver("conv", "ConvMatrixCoreGemm")
DEVICES = {
    "sm_90": DeviceProperties(
        "cuda", "", "sm_90", 132, 32, 49152, 1024, dynamic_local_memory=232448
    ),
    "gfx90a": DeviceProperties("hip", "", "gfx90a", 110, 64, 65536, 1024),
}
HEADER = (source_folder() / "runtime/matrix.h").read_text(encoding="utf-8")
EMULATION = Path(__file__).with_name("matrix_emulation.h").read_text(encoding="utf-8")


class EmulatingExecutor(Executor):
    """Builds kernels of matrix cores for a device that has none."""

    def __init__(self) -> None:
        super().__init__(open_device("cpu"))
        self._emulated: dict[KernelSource, Kernel] = {}

    def kernel(self, wanted: KernelSource) -> Kernel:
        if wanted not in self._emulated:
            source = whole_source(wanted.file, "opencl")
            assert HEADER in source
            source = source.replace(HEADER, HEADER + EMULATION)
            binary = self.device.compile(source, wanted.macros)
            self._emulated[wanted] = self.device.load(binary, wanted.name)
        return self._emulated[wanted]


@cache
def emulator() -> EmulatingExecutor:
    return EmulatingExecutor()


def small_configs(problem: ConvProblem, device: DeviceProperties, count: int) -> list[Config]:
    """Configs that a processor emulates in little time."""
    drawn = SOLVER.space(problem, device).sample(60 * count, seed=len(str(problem)))
    return [
        config
        for config in drawn
        if config["TILE_M"] * config["TILE_N"] <= 64 * 64
        and config["WAVES_M"] * config["WAVES_N"] <= 4
    ][:count]


@pytest.mark.parametrize("arch", DEVICES)
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(data=st.data())
def test_agrees_with_float64(arch: str, data: st.DataObject) -> None:
    device = DEVICES[arch]
    problem = data.draw(applicable_to(SOLVER, device), label="problem")
    config = data.draw(st.sampled_from(small_configs(problem, device, 3)), label="config")
    alpha, beta = data.draw(st.sampled_from(((1.0, 0.0), (0.5, -2.0))), label="scales")
    check_against_reference(SOLVER, problem, config, emulator(), alpha, beta)
