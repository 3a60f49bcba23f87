"""Acceptance thresholds whose risk is bounded, for a model whose scores promise nothing.

The method is Learn then Test (Angelopoulos, Bates, Candès, Jordan, Lei, "Learn then Test:
Calibrating predictive algorithms to achieve risk control", 2021): each threshold of a grid that
was fixed beforehand is a null hypothesis "its risk is above alpha", tested with an exact binomial
p-value. The grid is walked from the strictest threshold and the walk stops at the first that
can't be rejected (fixed-sequence testing), which keeps the chance of accepting any threshold of
too high a risk below delta, although the risk need not be monotone in the threshold.

Records of one shape are not independent. For each threshold one accepted record is drawn from
each shape, so that the trials of the test are independent and the binomial is exact; the risk
bounded is that of a random accepted record of a random shape.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats


@dataclass(frozen=True)
class Threshold:
    """The lowest score that may be accepted at a risk, and what showed it.

    Parameters
    ----------
    risk : float
        Bound on P(pick is bad | accepted).
    score : float or None
        Accept at this score and above; None accepts nothing.
    shapes : int
        Shapes with an accepted record among those calibrated on.
    failures : int
        Shapes whose drawn record was bad.
    coverage : float
        Share of the records calibrated on that is accepted.
    record_risk : float
        Bad records among all accepted records calibrated on.
    """

    risk: float
    score: float | None
    shapes: int = 0
    failures: int = 0
    coverage: float = 0.0
    record_risk: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Give the fields for JSON."""
        return asdict(self)


def learn_then_test(
    scores: npt.NDArray[np.float64],
    bad: npt.NDArray[np.bool_],
    shapes: npt.NDArray[np.int64],
    grid: npt.NDArray[np.float64],
    risk: float,
    delta: float = 0.1,
    seed: int = 1,
) -> Threshold:
    """Lowest threshold of a grid that is shown to keep the risk.

    Beyond the test, the walk also stops where the share of bad picks among all accepted records,
    in which shapes of many records weigh more, can't be told from the risk: its upper bound at
    the same confidence (normal, with the spread between shapes) must not exceed it. That can only
    make the choice stricter.

    Parameters
    ----------
    scores : array of shape (records,)
        Higher is surer.
    bad : array of shape (records,)
        Whether the pick turned out bad.
    shapes : array of shape (records,)
        Shape that each record belongs to.
    grid : array
        Thresholds, chosen without looking at these records.
    risk : float
        Bound on the share of bad picks among the accepted (alpha).
    delta : float, default 0.1
        Allowed chance that the bound is broken.
    seed : int, default 1
        Draws the record of each shape.

    Returns
    -------
    Threshold

    Examples
    --------
    >>> scores = np.linspace(0, 1, 4000)
    >>> bad = np.arange(4000) % 10 < np.where(scores < 0.5, 5, 0)
    >>> found = learn_then_test(scores, bad, np.arange(4000), np.linspace(0.9, 0, 91), 0.05)
    >>> 0.4 < found.score < 0.5
    True
    """
    order = np.random.default_rng(seed).permutation(len(scores))
    best = Threshold(risk, None)
    for score in np.sort(np.unique(grid))[::-1]:
        accepted = order[scores[order] >= score]
        if not len(accepted):
            continue
        _, first = np.unique(shapes[accepted], return_index=True)
        drawn = bad[accepted[first]]
        failures = int(drawn.sum())
        record_risk = float(bad[accepted].mean())
        most = record_risk + stats.norm.isf(delta) * _spread(bad[accepted], shapes[accepted])
        if stats.binom.cdf(failures, len(drawn), risk) > delta or most > risk:
            break
        best = Threshold(
            risk, float(score), len(drawn), failures, len(accepted) / len(scores), record_risk
        )
    return best


def _spread(bad: npt.NDArray[np.bool_], shapes: npt.NDArray[np.int64]) -> float:
    """Give the standard error of the share of bad records when shapes are drawn."""
    _, shape = np.unique(shapes, return_inverse=True)
    surplus = np.bincount(shape, bad - bad.mean())
    return float(np.sqrt((surplus**2).sum()) / len(bad))
