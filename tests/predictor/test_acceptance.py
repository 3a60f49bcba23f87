"""What is accepted at which risk."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretune.errors import InputError
from foretune.predictor.acceptance import Acceptance, to_bits

CONTENT = {
    "entries": [
        {
            "compute_units": 104,
            "direction": "F",
            "runnable": "3",
            "thresholds": [
                {"risk": 0.01, "score": None},
                {"risk": 0.02, "score": 0.95},
                {"risk": 0.10, "score": 0.60},
            ],
        }
    ]
}
ACCEPTANCE = Acceptance(CONTENT)


@pytest.mark.parametrize(
    ("risk", "score", "accepted"),
    [
        (0.02, 0.95, True),
        (0.02, 0.94, False),
        (0.05, 0.94, False),
        (0.05, 0.96, True),
        (0.10, 0.60, True),
        (0.99, 0.59, False),
        (0.01, 1.00, False),
        (0.005, 1.00, False),
        (0.10, float("nan"), False),
    ],
)
def test_the_nearest_lower_risk_decides(risk: float, score: float, accepted: bool) -> None:
    verdict = ACCEPTANCE.judge(104, "F", 3, risk, score)
    assert verdict.accepted == accepted
    assert verdict.reason


@pytest.mark.parametrize(
    ("units", "direction", "runnable", "word"),
    [(110, "F", 3, "110 units"), (104, "B", 3, "not calibrated"), (104, "F", 1, "not calibrated")],
)
def test_what_was_not_calibrated_is_not_accepted(
    units: int, direction: str, runnable: int, word: str
) -> None:
    verdict = ACCEPTANCE.judge(units, direction, runnable, 0.2, 1.0)
    assert not verdict.accepted
    assert word in verdict.reason


def test_flags_become_bits() -> None:
    assert to_bits([]) == 0
    assert to_bits([False, True, True]) == 6


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
        *({"entries": [{**CONTENT["entries"][0], **change}]} for change in WRONG),
    ],
)
def test_what_is_no_calibration_is_refused(content: Any) -> None:
    with pytest.raises(InputError, match="is damaged") as caught:
        Acceptance(json.loads(json.dumps(content)), "some/calibration.json")
    assert caught.value.where == "some/calibration.json"
