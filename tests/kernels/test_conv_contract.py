"""What every convolution solver promises, on every device that is here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.registry import solvers, tensors
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.solver import WORKSPACE_ALIGNMENT, Solver, Workspace
from foretune.kernels.space import Config
from tests.kernels.conv_reference import convolve
from tests.kernels.conv_strategies import applicable_to
from tests.kernels.storage import (
    POISON,
    GuardedMemory,
    from_bits,
    in_logical_order,
    in_memory,
    to_bits,
)

TOLERANCES = {"FP32": 1e-5, "FP16": 5e-3, "BF16": 2e-2}
SOLVERS = solvers("conv")

every_solver = pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.id)
# Each example may compile; drawing what a picky solver takes needs many tries.
patient = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[
        HealthCheck.filter_too_much,
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
    ],
)


def _skip_if_never_applicable(solver: Solver[Any], executor: Executor) -> None:
    reason = solver.why_never(executor.device.properties)
    if reason:
        pytest.skip(reason)


@every_solver
@patient
@given(data=st.data())
def test_agrees_with_float64(solver: Solver[Any], executor: Executor, data: st.DataObject) -> None:
    _skip_if_never_applicable(solver, executor)
    properties = executor.device.properties
    problem = data.draw(applicable_to(solver, properties), label="problem")
    space = solver.space(problem, properties)
    config = data.draw(
        st.sampled_from(space.sample(8, seed=data.draw(st.integers(0, 3)))), label="config"
    )
    alpha, beta = data.draw(st.sampled_from(((1.0, 0.0), (1.0, 0.0), (0.5, -2.0))), label="scales")
    seed = data.draw(st.integers(0, 2**32 - 1), label="seed")
    check_against_reference(solver, problem, config, executor, alpha, beta, seed)


def check_against_reference(
    solver: Solver[Any],
    problem: ConvProblem,
    config: Config,
    executor: Executor,
    alpha: float = 1.0,
    beta: float = 0.0,
    seed: int = 0,
) -> None:
    """Run a candidate between guards and compare."""
    generator = np.random.default_rng(seed)
    described = {tensor.name: tensor for tensor in tensors(problem)}
    plan = solver.plan(problem, config, alpha, beta)
    sizes = {name: tensor.nbytes for name, tensor in described.items()}
    memory = GuardedMemory(executor.device, {**sizes, "workspace": plan.workspace})
    bits = {
        name: to_bits(generator.standard_normal(tensor.shape), tensor.dtype)
        for name, tensor in described.items()
    }
    output = next(tensor for tensor in described.values() if tensor.is_output)
    for name, tensor in described.items():
        if not tensor.is_output or beta:
            memory.write(name, in_memory(tensor, bits[name]))
    try:
        run = executor.prepare(plan, memory.buffers)
        run()
        executor.device.synchronize()
        memory.read("workspace")
        for name, tensor in described.items():
            if not tensor.is_output:
                same = in_memory(tensor, bits[name]).view(np.uint8).ravel()
                assert (memory.read(name) == same).all(), f"the input {name} was changed"
        stored = memory.read(output.name).view(bits[output.name].dtype)
    finally:
        memory.free()
    values = {name: from_bits(content, problem.dtype) for name, content in bits.items()}
    inputs = {name: values[name] for name in ("x", "w", "y") if name != output.name}
    expected = alpha * convolve(problem, inputs)
    scale = np.abs(alpha) * convolve(problem, {n: np.abs(v) for n, v in inputs.items()})
    if problem.bias:
        expected += values["bias"].reshape(-1, *(1,) * problem.ndim)
        scale += np.abs(values["bias"]).reshape(-1, *(1,) * problem.ndim)
    if beta:
        expected += beta * values[output.name]
        scale += np.abs(beta * values[output.name])
    actual = from_bits(in_logical_order(output, stored), problem.dtype)
    tolerance = max(TOLERANCES[problem.dtype], getattr(solver, "fp32_tolerance", 0.0))
    assert np.isfinite(actual).all(), "some elements were not written"
    assert np.abs(actual - expected).max() <= tolerance * max(float(scale.max()), 1e-30)


@every_solver
@patient
@given(data=st.data())
def test_states_what_it_does(solver: Solver[Any], executor: Executor, data: st.DataObject) -> None:
    _skip_if_never_applicable(solver, executor)
    properties = executor.device.properties
    problem = data.draw(applicable_to(solver, properties), label="problem")
    space = solver.space(problem, properties)
    default = solver.default_config(problem, properties)
    assert space.why_not(default) is None
    names = {tensor.name for tensor in tensors(problem)} | {"bias"}
    for config in space.sample(5, seed=1):
        assert config in space
        assert space.parse(config.key) == config
        assert len(space.encode(config)) == len(space.tunables)
        plan = solver.plan(problem, config)
        assert solver.workspace_size(problem, config) == plan.workspace
        assert plan.launches
        for launch in plan.launches:
            assert launch.kernel.threads <= properties.max_threads
            assert all(size >= 1 for size in launch.grid)
            assert launch.grid[1] < 65536, "CUDA allows no more"
            assert launch.grid[2] < 65536, "CUDA allows no more"
            for argument in launch.arguments:
                if isinstance(argument, str):
                    assert argument in names
                if isinstance(argument, Workspace):
                    assert argument.offset % WORKSPACE_ALIGNMENT == 0
                    assert argument.offset < plan.workspace


@every_solver
@patient
@given(data=st.data())
def test_sizes_are_arguments(solver: Solver[Any], executor: Executor, data: st.DataObject) -> None:
    # A new shape compiles nothing whose config was built before.
    _skip_if_never_applicable(solver, executor)
    properties = executor.device.properties
    problem = data.draw(applicable_to(solver, properties), label="problem")
    config = solver.default_config(problem, properties)
    kernels = {launch.kernel for launch in solver.plan(problem, config).launches}
    sizes = {problem.batch, problem.in_channels, problem.out_channels, *problem.in_size}
    for kernel in kernels:
        for name, value in kernel.macros:
            assert value <= 1024 or value not in sizes, f"{name} looks like a size"


def test_ids_are_unique() -> None:
    ids = [solver.id for solver in SOLVERS]
    assert len(set(ids)) == len(ids)
    assert POISON == 0xFF
