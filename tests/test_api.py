"""The package's public names: what they refuse, and that an answer doesn't depend on who asks."""

from __future__ import annotations

import copy
import os
import pickle
import random
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import foretune
from foretune.predictor.forest import model

ARCH = "gfx942"
PLAIN = foretune.ConvProblem("F", 32, 64, (56, 56), 64, (3, 3), padding=(1, 1), dtype="FP16")
PROBLEMS = [
    replace(PLAIN, direction=direction, batch=batch, in_channels=channels)
    for direction in "FBW"
    for batch in (1, 8, 32, 100)
    for channels in (16, 64, 192, 512)
]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        *(({"problem": value}, "problem") for value in (5, None, b"key", [PLAIN], object())),
        *(({"arch": value}, "arch") for value in (None, 942, ["gfx942"], "", "GFX942")),
        *(
            ({"compute_units": value}, "compute units")
            for value in ("304", 304.5, True, float("nan"), 10**30, [304], -1)
        ),
        *(({"risk": value}, "risk") for value in ("0.05", None, [0.05], 0.05j, 1, float("nan"))),
        *(({"top": value}, "top") for value in ("4", 1.5, None, float("nan"), [1], 0)),
        *(({"family": value}, "family") for value in (None, ["miopen"], "cudnn")),
        *(({"miopen": value}, "MIOpen version") for value in (3.6, None, ["3.6"], "2.0")),
    ],
)
def test_a_wrong_argument_is_told_by_its_name(change: dict[str, Any], where: str) -> None:
    arguments: dict[str, Any] = {"problem": PLAIN, "arch": ARCH, **change}
    with pytest.raises(foretune.InputError) as caught:
        foretune.predict(**arguments)
    assert caught.value.where == where


@pytest.mark.parametrize("problems", [PLAIN, "MIOpenDriver conv -F 1"])
def test_one_problem_is_not_many(problems: Any) -> None:
    with pytest.raises(foretune.InputError, match="predict takes one"):
        foretune.Predictor(ARCH).predict_many(problems)


def test_numbers_of_numpy_are_numbers() -> None:
    units: Any = np.int64(304)
    risk: Any = np.float32(0.25)
    answer = foretune.Predictor(ARCH, units, risk=risk).predict(PLAIN)
    assert answer == foretune.Predictor(ARCH, 304, risk=0.25).predict(PLAIN)
    assert (type(answer.compute_units), type(answer.risk)) == (int, float)


@pytest.fixture(params=["numpy", "compiled"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "compiled":
        pytest.importorskip("llvmlite")
        monkeypatch.setattr(model, "_COMPILE_AFTER", 0)
    else:
        monkeypatch.setattr(model, "_COMPILE_AFTER", sys.maxsize)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("engine")
def test_threads_and_children_get_the_same_answers() -> None:
    expected = foretune.Predictor(ARCH).predict_many(PROBLEMS)
    predictor = foretune.Predictor(ARCH)
    answers: dict[int, list[foretune.Prediction]] = {}

    def ask(seed: int) -> None:
        order = list(range(len(PROBLEMS)))
        random.Random(seed).shuffle(order)
        found = {at: predictor.predict(PROBLEMS[at]) for at in order}
        answers[seed] = [found[at] for at in range(len(PROBLEMS))]

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(answers.values()) == [expected] * 4

    others = [replace(problem, batch=problem.batch + 1) for problem in PROBLEMS]
    child = os.fork()
    if not child:
        same = predictor.predict_many(others) == foretune.Predictor(ARCH).predict_many(others)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_predictor_and_its_answers_travel() -> None:
    predictor = foretune.Predictor(ARCH, 228, risk=0.1, miopen="3.6")
    answer = predictor.predict(PLAIN)
    for again in (pickle.loads(pickle.dumps(predictor)), copy.deepcopy(predictor)):
        assert again.predict(PLAIN) == answer
    for same in (pickle.loads(pickle.dumps(answer)), copy.deepcopy(answer)):
        assert same == answer
        assert [s.to_dict() for s in same.solutions] == [s.to_dict() for s in answer.solutions]
