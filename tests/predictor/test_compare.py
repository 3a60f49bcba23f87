"""Scores of picks."""

from __future__ import annotations

import numpy as np
import pytest

from foretune.predictor.compare import delivered, score_picks


def test_scores_are_over_listed_picks() -> None:
    best = np.full(5, 2.0)
    picked = np.array([2.0, 2.03, 2.5, 8.0, np.inf])
    score = score_picks(best, picked, np.array([2.0, 2.0, 2.0, 4.0, np.inf]))
    assert score.problems == 5
    assert score.top1 == pytest.approx(0.2)
    assert score.top1_within_2pct == pytest.approx(0.4)
    assert score.not_listed == pytest.approx(0.2)
    assert score.slowdown == pytest.approx((1 * 1.015 * 1.25 * 4) ** 0.25)
    assert score.mean_efficiency == pytest.approx((1 + 1 / 1.015 + 0.8 + 0.25) / 4)
    assert (score.above_1_1x, score.above_2x) == (0.5, 0.25)
    assert score.top3_slowdown == pytest.approx(2**0.25)
    assert score.top3_not_listed == pytest.approx(0.2)


def test_no_problem_is_no_error() -> None:
    assert score_picks(np.array([]), np.array([])).problems == 0


def test_unlisted_accepted_picks_are_bad() -> None:
    best = np.ones(4)
    picked = np.array([1.0, np.inf, np.inf, 1.0])
    outcome = delivered(best, picked, best, np.array([True, True, False, False]), 0.05, best)
    assert (outcome.risk, outcome.coverage, outcome.measured) == (0.5, 0.5, 0.5)
    assert outcome.slowdown == 1.0


def test_risk_by_shape_counts_each_shape_once() -> None:
    best = np.ones(6)
    picked = np.array([2.0, 2.0, 2.0, 2.0, 1.0, 1.0])
    outcome = delivered(best, picked, best, best > 0, 0.05, np.array([1, 1, 1, 1, 2, 3]))
    assert outcome.risk == pytest.approx(4 / 6)
    assert outcome.risk_by_shape == pytest.approx(1 / 3)
