"""Single elements against a whole convolution, and what the check of samples notices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.kernels.bench import Bench
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.conv.samples import element, terms
from foretune.kernels.measure import MeasureOptions
from foretune.kernels.memory import ProblemMemory
from foretune.kernels.registry import solvers
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.sampled_check import SampledChecker
from foretune.kernels.solver import Candidate
from tests.kernels.conv_reference import convolve

OUTPUT = {"F": "y", "B": "x", "W": "w"}


@st.composite
def problems(draw: st.DrawFn) -> ConvProblem:
    ndim = draw(st.sampled_from((2, 2, 3)))
    groups = draw(st.integers(1, 2))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(ndim))

    return ConvProblem(
        draw(st.sampled_from("FBW")),
        draw(st.integers(1, 2)),
        groups * draw(st.integers(1, 3)),
        each(5, 7),
        groups * draw(st.integers(1, 3)),
        each(1, 3),
        stride=each(1, 3),
        padding=each(0, 2),
        dilation=each(1, 2),
        groups=groups,
    )


@settings(max_examples=30, deadline=None)
@given(problem=problems())
def test_elements_are_those_of_the_whole(problem: ConvProblem) -> None:
    random = np.random.default_rng(1)
    shapes = {
        "x": (problem.batch, problem.in_channels, *problem.in_size),
        "w": (
            problem.out_channels,
            problem.in_channels // problem.groups,
            *problem.filter_size,
        ),
        "y": (problem.batch, problem.out_channels, *problem.out_size),
    }
    name = OUTPUT[problem.direction]
    inputs: dict[str, Any] = {
        other: random.standard_normal(shape) for other, shape in shapes.items() if other != name
    }
    whole = convolve(problem, inputs)
    for flat in random.integers(0, whole.size, 5):
        place = tuple(int(at) for at in np.unravel_index(flat, whole.shape))
        single = element(problem, place, lambda other, index: inputs[other][index])
        assert single == pytest.approx(whole[place], abs=1e-9)
    assert terms(problem) >= 1


@pytest.mark.parametrize("direction", ["F", "B", "W"])
@pytest.mark.parametrize(
    ("layout", "dtype"), [("NCHW", "FP32"), ("NHWC", "FP16"), ("NHWC", "BF16")]
)
def test_all_solvers_pass(executor: Executor, direction: str, layout: str, dtype: str) -> None:
    problem = ConvProblem(
        *(direction, 2, 16, (12, 12), 16, (3, 3)), padding=(1, 1), dtype=dtype, layout=layout
    )
    options = MeasureOptions(rounds=1, most_samples=1, warm_up_ms=0.1, by_samples=True)
    bench = Bench(executor, problem, check=True, options=options)
    properties = executor.device.properties
    try:
        for solver in solvers("conv"):
            if solver.is_applicable(problem, properties):
                outcome = bench.attempt(
                    Candidate(solver, solver.default_config(problem, properties))
                )
                assert outcome.status in ("measured", "too slow"), (solver.id, outcome)
    finally:
        bench.close()


@pytest.mark.parametrize("spoil", ["nothing written", "one element", "other numbers"])
def test_what_is_wrong_is_noticed(executor: Executor, spoil: str) -> None:
    problem = ConvProblem("F", 2, 8, (9, 9), 8, (3, 3))
    memory = ProblemMemory(executor.device, problem)
    checker = SampledChecker(executor, problem, memory)
    solver = next(one for one in solvers("conv") if one.id == "ConvNaive")
    plan = solver.plan(problem, solver.default_config(problem, executor.device.properties))
    output = memory.buffers["y"]
    assert output is not None
    checker.poison()
    executor.prepare(plan, memory.buffers)()
    executor.device.synchronize()
    good = checker.error()
    assert checker.why_wrong(good) is None
    values = np.empty(memory.output.size, np.float32)
    executor.device.read(output, values)
    if spoil == "one element":
        values[0] = values.view(np.float32)[0] + 1
        executor.device.write(output, values)
    elif spoil == "other numbers":
        executor.device.write(output, values[::-1].copy())
    else:
        checker.poison()
    assert "differs from float64" in (checker.why_wrong(checker.error()) or "")
    memory.free()


@pytest.mark.parametrize("where", ["first", "last"])
def test_large_outputs_are_looked_at_in_parts(executor: Executor, where: str) -> None:
    problem = ConvProblem("F", 3, 1, (1031, 1033), 3, (1, 1))
    memory = ProblemMemory(executor.device, problem)
    checker = SampledChecker(executor, problem, memory)
    solver = next(one for one in solvers("conv") if one.id == "ConvNaive")
    plan = solver.plan(problem, solver.default_config(problem, executor.device.properties))
    output = memory.buffers["y"]
    assert output is not None
    assert output.nbytes > 32 << 20
    checker.poison()
    assert checker.error() == float("inf")
    executor.prepare(plan, memory.buffers)()
    executor.device.synchronize()
    assert checker.why_wrong(checker.error()) is None
    values = np.empty(memory.output.size, np.float32)
    executor.device.read(output, values)
    values[0 if where == "first" else -1] += 1
    executor.device.write(output, values)
    assert checker.why_wrong(checker.error()) is not None
    memory.free()
