"""What every solver promises, whatever its operation; the suites of operations call these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from foretune.kernels.registry import tensors
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.solver import WORKSPACE_ALIGNMENT, Solver, Workspace
from foretune.kernels.space import Config
from tests.kernels.storage import (
    GuardedMemory,
    from_bits,
    in_logical_order,
    in_memory,
    to_bits,
)

Array = npt.NDArray[np.float64]
#: Computes alpha * result (+ bias) in float64 from the inputs by name.
Reference = Callable[[Any, Mapping[str, Array], float], Array]

TOLERANCES = {"FP32": 1e-5, "FP16": 5e-3, "BF16": 2e-2}

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


def draw_problem(
    solver: Solver[Any], executor: Executor, data: st.DataObject, problems: st.SearchStrategy[Any]
) -> Any:
    """Draw a problem that a solver takes; skip if it takes none on this device."""
    properties = executor.device.properties
    reason = solver.why_never(properties)
    if reason:
        pytest.skip(reason)
    applicable = problems.filter(lambda problem: solver.is_applicable(problem, properties))
    return data.draw(applicable, label="problem")


def draw_agreement(
    solver: Solver[Any],
    problem: Any,
    executor: Executor,
    data: st.DataObject,
    reference: Reference,
) -> None:
    """Draw a config and scales, run them and compare."""
    space = solver.space(problem, executor.device.properties)
    config = data.draw(
        st.sampled_from(space.sample(8, seed=data.draw(st.integers(0, 3)))), label="config"
    )
    alpha, beta = data.draw(st.sampled_from(((1.0, 0.0), (1.0, 0.0), (0.5, -2.0))), label="scales")
    seed = data.draw(st.integers(0, 2**32 - 1), label="seed")
    check_agreement(solver, problem, config, executor, reference, alpha, beta, seed)


def check_agreement(
    solver: Solver[Any],
    problem: Any,
    config: Config,
    executor: Executor,
    reference: Reference,
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
    old = values.pop(output.name)
    expected = reference(problem, values, alpha)
    scale = reference(problem, {name: np.abs(each) for name, each in values.items()}, abs(alpha))
    if beta:
        expected = expected + beta * old
        scale = scale + np.abs(beta * old)
    actual = from_bits(in_logical_order(output, stored), problem.dtype)
    tolerance = max(TOLERANCES[problem.dtype], getattr(solver, "fp32_tolerance", 0.0))
    assert np.isfinite(actual).all(), "some elements were not written"
    assert np.abs(actual - expected).max() <= tolerance * max(float(scale.max()), 1e-30)


def check_statements(solver: Solver[Any], problem: Any, executor: Executor) -> None:
    """See that space, plans and workspace fit each other and the device."""
    properties = executor.device.properties
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


def grown(size: int) -> int:
    """Make a size five times as large, which is divisible by the same powers of two; not one."""
    return size if size == 1 else 5 * size


def check_sizes_are_arguments(
    solver: Solver[Any], problem: Any, larger: Any, executor: Executor
) -> None:
    """See that a problem of `grown` sizes compiles nothing new."""
    properties = executor.device.properties
    assert solver.is_applicable(larger, properties)
    others = solver.space(larger, properties)
    for config in solver.space(problem, properties).sample(3, seed=2):
        if config in others:
            kernels, same = (
                {launch.kernel for launch in solver.plan(described, config).launches}
                for described in (problem, larger)
            )
            assert kernels == same
