"""Thresholds keep their promise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from foretune.predictor.calibrate import learn_then_test

GRID = np.linspace(0.70, 0.0, 71)


def draw(
    rng: np.random.Generator, shapes: int, most: int = 12
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Records in clusters of unlike size whose badness is shared, risk 0.12 * (1 - score)."""
    sizes = rng.integers(1, most, shapes)
    owner = np.repeat(np.arange(shapes), sizes)
    scores = np.clip(rng.random(shapes)[owner] + rng.normal(0, 0.02, len(owner)), 0, 1)
    bad = rng.random(shapes)[owner] < 0.12 * (1 - scores)
    return scores, bad, owner


def test_risk_is_kept_as_often_as_stated() -> None:
    rng = np.random.default_rng(7)
    scores, bad, owner = draw(rng, 60_000)
    broken = used = 0
    for seed in range(120):
        found = learn_then_test(*draw(np.random.default_rng(seed), 800), GRID, 0.05, 0.1, seed)
        if found.score is None:
            continue
        used += 1
        accepted = scores >= found.score
        first = np.unique(owner[accepted], return_index=True)[1]
        broken += bool(bad[accepted][first].mean() > 0.05)
    assert used > 100
    # 10% may break it; 120 trials of that stay below 20 but for once in a thousand.
    assert broken < 20


def test_nothing_is_accepted_where_nothing_can_be_shown() -> None:
    scores = np.linspace(0, 1, 500)
    assert learn_then_test(scores, np.ones(500, bool), np.arange(500), GRID, 0.05).score is None
    few = np.linspace(0.99, 1, 10)
    assert learn_then_test(few, np.zeros(10, bool), np.arange(10), GRID, 0.05).score is None


def test_records_of_one_shape_count_once() -> None:
    scores, bad = np.ones(1000), np.zeros(1000, bool)
    independent = learn_then_test(scores, bad, np.arange(1000), GRID, 0.05)
    assert (independent.shapes, independent.score) == (1000, 0.0)
    of_ten_shapes = learn_then_test(scores, bad, np.arange(1000) % 10, GRID, 0.05)
    assert of_ten_shapes.score is None


def test_the_walk_stops_at_the_first_threshold_that_fails() -> None:
    # Bad between 0.4 and 0.6, perfect below: lower thresholds would pass again.
    scores = np.concatenate([np.full(300, 0.9), np.full(60, 0.5), np.full(9000, 0.2)])
    bad = (scores > 0.4) & (scores < 0.6)
    found = learn_then_test(scores, bad, np.arange(len(scores)), GRID, 0.05)
    assert found.score == pytest.approx(0.51)
