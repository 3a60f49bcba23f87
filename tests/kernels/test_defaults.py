"""Default configs are configs, for every solver and layer of the suites, also on absent devices."""

from __future__ import annotations

from typing import Any

import pytest

from foretune.kernels.registry import solvers
from foretune.kernels.runtime.properties import DeviceProperties, amd_properties
from foretune.kernels.solver import Solver
from foretune.kernels.suites import read_suite, suite_names

#: As the driver of an H200 tells it.
H200 = DeviceProperties(
    *("cuda", "NVIDIA H200", "sm_90", 132, 32, 49152, 1024, 1980, 4814.3, 62914560, 150109880320),
    dynamic_local_memory=232448,
)
DEVICES = [H200, *map(amd_properties, ("gfx908", "gfx90a", "gfx942"))]


@pytest.mark.parametrize("solver", solvers("conv"), ids=lambda solver: solver.id)
@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.arch)
def test_defaults_are_in_their_space(solver: Solver[Any], device: DeviceProperties) -> None:
    problems = read_suite(",".join(suite_names()))
    applicable = [problem for problem in problems if solver.is_applicable(problem, device)]
    assert applicable
    for problem in applicable:
        default = solver.default_config(problem, device)
        assert solver.space(problem, device).why_not(default) is None, problem


@pytest.mark.parametrize("solver", solvers("conv"), ids=lambda solver: solver.id)
@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.arch)
def test_bounds_are_the_space_but_for_the_default(
    solver: Solver[Any], device: DeviceProperties
) -> None:
    problems = read_suite("gpu,cpu_varied")[::5]
    for problem in problems:
        if solver.is_applicable(problem, device):
            space, bounds = solver.space(problem, device), solver.bounds(problem, device)
            assert bounds.names == space.names
            assert all(
                one.values == other.values
                for one, other in zip(space.tunables, bounds.tunables, strict=True)
            )
            assert bounds.why_not(space.default) is None
