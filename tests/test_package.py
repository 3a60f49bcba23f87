"""The public names."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import foretune
from foretune import ConvProblem, InputError, Predictor, predict

KEY = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F"
PROBLEM = ConvProblem("F", 32, 64, (56, 56), 128, (1, 1), dtype="FP16")


def test_all_public_names_are_there() -> None:
    for name in foretune.__all__:
        assert getattr(foretune, name) is not None
        assert name in dir(foretune)
    with pytest.raises(AttributeError, match="nonsense"):
        foretune.nonsense  # noqa: B018


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())
    assert foretune.__version__ == project["project"]["version"]


def test_a_problem_may_be_text() -> None:
    answer = predict(PROBLEM, arch="gfx942", compute_units=304)
    assert answer.solutions
    assert predict(KEY, arch="gfx942", compute_units=304) == answer
    line = "MIOpenDriver convfp16 -n 32 -c 64 -H 56 -W 56 -k 128 -y 1 -x 1 -F 1"
    assert predict(line, arch="gfx942", compute_units=304) == answer
    assert Predictor("gfx942").predict_many([line, PROBLEM]) == [answer, answer]


def test_the_same_question_is_answered_from_memory() -> None:
    assert predict(PROBLEM, "gfx942") is predict(PROBLEM, "gfx942")
    assert predict(PROBLEM, "gfx942", risk=0.1) is not predict(PROBLEM, "gfx942")
    assert len(predict(PROBLEM, "gfx942", top=2).solutions) == 2


def test_what_can_not_be_asked_is_told() -> None:
    for arguments, message in (
        ({"problem": "MIOpenDriver conv"}, r"3 problems \(directions F, B, W\)"),
        ({"problem": "nonsense"}, "find-db key"),
        ({"family": "kernels", "miopen": "3.6"}, "only MIOpen's solvers"),
        ({"family": "cudnn"}, "family: expected one of"),
        ({"top": 0}, "top: expected at least 1"),
        ({"risk": 0.0}, "risk: expected a share"),
        ({"arch": "MI300X"}, "arch: expected an arch"),
    ):
        with pytest.raises(InputError, match=message):
            predict(**({"problem": PROBLEM, "arch": "gfx942"} | arguments))  # type: ignore[arg-type]
