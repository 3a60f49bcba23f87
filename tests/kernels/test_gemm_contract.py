"""What every solver of matrix multiplication promises, on every device that is here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.kernels.gemm.problem import DTYPES, TRANSPOSES, GemmProblem
from foretune.kernels.problem_text import format_problem, parse_problem
from foretune.kernels.registry import solvers
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.solver import Solver
from tests.kernels.contract import (
    Array,
    check_sizes_are_arguments,
    check_statements,
    draw_agreement,
    draw_problem,
    grown,
    patient,
)

SOLVERS = solvers("gemm")

every_solver = pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.id)
sizes = st.one_of(st.integers(1, 90), st.integers(1, 20).map(lambda size: 4 * size))
problems = st.builds(
    GemmProblem,
    sizes,
    sizes,
    st.one_of(sizes, st.integers(200, 300)),
    st.integers(1, 3),
    st.sampled_from(TRANSPOSES),
    st.sampled_from(DTYPES),
)


def reference(_: GemmProblem, inputs: Mapping[str, Array], alpha: float) -> Array:
    product: Array = alpha * (inputs["a"] @ inputs["b"])
    return product


@every_solver
@patient
@given(data=st.data())
def test_agrees_with_float64(solver: Solver[Any], executor: Executor, data: st.DataObject) -> None:
    problem = draw_problem(solver, executor, data, problems)
    draw_agreement(solver, problem, executor, data, reference)


@every_solver
@patient
@given(data=st.data())
def test_states_what_it_does(solver: Solver[Any], executor: Executor, data: st.DataObject) -> None:
    problem = draw_problem(solver, executor, data, problems)
    check_statements(solver, problem, executor)
    larger = replace(problem, m=grown(problem.m), n=grown(problem.n), k=grown(problem.k))
    check_sizes_are_arguments(solver, problem, larger, executor)


@given(problems)
def test_problems_survive_as_text(problem: GemmProblem) -> None:
    assert parse_problem(format_problem(problem)) == problem


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"m": 0}, "m"),
        ({"k": 1.5}, "k"),
        ({"batch": -1}, "batch"),
        ({"transposes": "NX"}, "transposes"),
        ({"dtype": "FP64"}, "dtype"),
    ],
)
def test_names_the_field_that_is_wrong(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as raised:
        GemmProblem(**{"m": 2, "n": 3, "k": 4, **fields})
    assert raised.value.where == field
