"""Nothing is accepted by a threshold that isn't one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretune.errors import InputError
from foretune.predictor.acceptance import Acceptance

THRESHOLDS = [
    {"risk": 0.05, "score": 0.9},
    {"risk": 0.1, "score": 0.8},
    {"risk": 0.02, "score": None},
]
ENTRY = {"compute_units": 304, "direction": "F", "runnable": "7", "thresholds": THRESHOLDS}


def test_a_pick_needs_a_threshold_that_it_reaches() -> None:
    acceptance = Acceptance({"entries": [ENTRY]})
    for risk, score, accepted in (
        (0.05, 0.9, True),
        (0.05, 0.89, False),
        (0.07, 0.89, False),
        (0.1, 0.89, True),
        (0.02, 1.0, False),
        (0.01, 1.0, False),
        (0.1, float("nan"), False),
    ):
        verdict = acceptance.judge(304, "F", 7, risk, score)
        assert verdict.accepted == accepted
        assert verdict.reason
    assert not acceptance.judge(303, "F", 7, 0.1, 1.0).accepted
    assert not acceptance.judge(304, "F", 3, 0.1, 1.0).accepted
    assert not acceptance.judge(None, "F", 7, 0.1, 1.0).accepted


WRONG: tuple[dict[str, Any], ...] = (
    {"compute_units": "x"},
    {"compute_units": [304]},
    {"direction": ["F"]},
    {"runnable": 7},
    {"runnable": "x"},
    {"thresholds": None},
    {"thresholds": []},
    {"thresholds": [5]},
    {"thresholds": [{"risk": 0.05}]},
    {"thresholds": [{"risk": "0.05", "score": 0.9}]},
    {"thresholds": [{"risk": 5, "score": 0.9}]},
    {"thresholds": [{"risk": 0.05, "score": "0.9"}]},
    {"thresholds": [{"risk": 0.05, "score": float("nan")}]},
    {"thresholds": [{"risk": 0.05, "score": float("-inf")}]},
)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"entries": 5},
        {"entries": [5]},
        {"entries": [{}]},
        *({"entries": [{**ENTRY, **change}]} for change in WRONG),
    ],
)
def test_what_is_no_calibration_is_refused(content: Any) -> None:
    with pytest.raises(InputError, match="is damaged") as caught:
        Acceptance(json.loads(json.dumps(content)), "some/calibration.json")
    assert caught.value.where == "some/calibration.json"
