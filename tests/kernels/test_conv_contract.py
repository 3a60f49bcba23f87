"""What every convolution solver promises, on every device that is here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.registry import solvers
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.solver import Solver
from foretune.kernels.space import Config
from tests.kernels.contract import (
    Array,
    check_agreement,
    check_sizes_are_arguments,
    check_statements,
    draw_agreement,
    draw_problem,
    grown,
    patient,
)
from tests.kernels.conv_reference import convolve
from tests.kernels.conv_strategies import conv_problems
from tests.kernels.storage import POISON

SOLVERS = solvers("conv")

every_solver = pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.id)


def reference(problem: ConvProblem, inputs: Mapping[str, Array], alpha: float) -> Array:
    result = alpha * convolve(problem, {name: inputs[name] for name in inputs if name != "bias"})
    if problem.bias:
        result = result + inputs["bias"].reshape(-1, *(1,) * problem.ndim)
    return result


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
    check_agreement(solver, problem, config, executor, reference, alpha, beta, seed)


@every_solver
@patient
@given(data=st.data())
def test_agrees_with_float64(solver: Solver[Any], executor: Executor, data: st.DataObject) -> None:
    problem = draw_problem(solver, executor, data, conv_problems())
    draw_agreement(solver, problem, executor, data, reference)


@every_solver
@patient
@given(data=st.data())
def test_states_what_it_does(solver: Solver[Any], executor: Executor, data: st.DataObject) -> None:
    problem = draw_problem(solver, executor, data, conv_problems())
    check_statements(solver, problem, executor)
    larger = replace(problem, batch=grown(problem.batch))
    if problem.groups == 1:
        larger = replace(
            larger,
            in_channels=grown(problem.in_channels),
            out_channels=grown(problem.out_channels),
        )
    check_sizes_are_arguments(solver, problem, larger, executor)


def test_ids_are_unique() -> None:
    ids = [solver.id for solver in SOLVERS]
    assert len(set(ids)) == len(ids)
    assert POISON == 0xFF
