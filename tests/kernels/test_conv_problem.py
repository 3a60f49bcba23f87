"""The problem as a value: what it takes, what it is equal to, and how it travels."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import asdict, fields, replace
from typing import Any

import pytest
from hypothesis import given

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from tests.strategies import problems

PLAIN = ConvProblem("F", 32, 64, (56, 56), 64, (3, 3))
SIZES = ("in_size", "filter_size", "stride", "padding", "dilation", "out_size")


@given(problems())
def test_equal_problems_are_one_key(problem: ConvProblem) -> None:
    values = {name: value for name, value in asdict(problem).items() if name not in SIZES}
    lists: Any = {name: list(getattr(problem, name)) for name in SIZES}
    for same in (
        ConvProblem(**asdict(problem)),
        ConvProblem(**values, **lists),
        copy.deepcopy(problem),
        pickle.loads(pickle.dumps(problem)),
    ):
        assert same == problem
        assert hash(same) == hash(problem)
        assert all(isinstance(getattr(same, name), tuple) for name in SIZES)


@given(problems())
def test_another_batch_is_another_problem(problem: ConvProblem) -> None:
    hash(problem)
    other = replace(problem, batch=problem.batch % 100 + 1)
    assert (other == problem) == (other.batch == problem.batch)
    assert hash(other) == hash(ConvProblem(**asdict(other)))


def test_a_pickled_problem_is_found_by_another_process() -> None:
    hash(PLAIN)
    script = (
        "import pickle, sys; from foretune import ConvProblem;"
        "problem = pickle.load(sys.stdin.buffer);"
        "sys.exit(problem not in {ConvProblem('F', 32, 64, (56, 56), 64, (3, 3))})"
    )
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", script],
            input=pickle.dumps(PLAIN),
            env={"PYTHONHASHSEED": seed},
            check=True,
        )


def test_equal_numbers_of_another_type_are_not_kept() -> None:
    given_size: Any = (54.0, 54.0)
    assert str(replace(PLAIN, out_size=given_size).out_size) == "(54, 54)"


def test_changed_sizes_say_how_to_follow() -> None:
    with pytest.raises(InputError, match=r"54x54 doesn't follow.*\(\) takes what follows"):
        replace(PLAIN, in_size=(28, 28))
    assert replace(PLAIN, in_size=(28, 28), out_size=()).out_size == (26, 26)


@pytest.mark.parametrize(
    "value", [5, 2.5, "56", b"56", "FP16 ", ["FP16"], (2.5, 2.5), ("3", "3"), object]
)
@pytest.mark.parametrize("name", [field.name for field in fields(ConvProblem)])
def test_a_wrong_value_is_told_by_its_field(name: str, value: Any) -> None:
    if name in ("batch", "in_channels", "out_channels", "bias") and value == 5:
        return  # is right
    with pytest.raises(InputError) as caught:
        ConvProblem(**{**asdict(PLAIN), name: value})
    assert caught.value.where


def test_a_number_of_thousands_of_digits_is_told() -> None:
    with pytest.raises(InputError, match="batch: expected 1 to 2147483647, got one of more than"):
        replace(PLAIN, batch=10**5000)
