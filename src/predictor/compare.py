"""How good picks are against the best that was measured.

Works on plain times, whoever made the picks. A time is infinite where nothing was recorded for the
pick: databases list few candidates a problem, so "not listed" means slower or not applicable, and
slowdowns are taken over the listed picks, with the share of the others beside them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: A pick slower than this, or not listed, is a bad one.
BAD_SLOWDOWN = 1.10


@dataclass(frozen=True)
class Score:
    """Picks against the best known, over a set of problems.

    Shares are between 0 and 1; `slowdown` is a geometric mean over listed picks, and efficiencies
    (their inverse) are a mean and the lowest tenth and hundredth.
    """

    problems: int
    top1: float
    top1_within_2pct: float
    not_listed: float
    slowdown: float
    mean_efficiency: float
    p10_efficiency: float
    p1_efficiency: float
    above_1_1x: float
    above_2x: float
    top3_slowdown: float | None = None
    top3_not_listed: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give the fields for JSON."""
        return asdict(self)


def score_picks(best: Floats, picked: Floats, top3: Floats | None = None) -> Score:
    """Score picks.

    Parameters
    ----------
    best : array of shape (problems,)
        Best time known.
    picked : array of shape (problems,)
        Time of the pick, infinite where it isn't listed.
    top3 : array of shape (problems,), optional
        Best time among the first three choices.

    Examples
    --------
    >>> score = score_picks(np.array([1.0, 1.0, 1.0]), np.array([1.0, 4.0, np.inf]))
    >>> score.slowdown, round(score.not_listed, 2), score.above_2x
    (2.0, 0.33, 0.5)
    """
    if not len(best):
        nan = float("nan")
        return Score(0, nan, nan, nan, nan, nan, nan, nan, nan, nan)
    slowdown = picked / best
    listed = np.isfinite(slowdown)
    of_listed = slowdown[listed] if listed.any() else np.array([np.nan])
    efficiency = 1 / of_listed
    three = None if top3 is None else top3 / best
    return Score(
        problems=len(best),
        top1=_share(slowdown <= 1.0),
        top1_within_2pct=_share(slowdown <= 1.02),
        not_listed=_share(~listed),
        slowdown=_geometric_mean(of_listed),
        mean_efficiency=float(efficiency.mean()),
        p10_efficiency=float(np.quantile(efficiency, 0.10)),
        p1_efficiency=float(np.quantile(efficiency, 0.01)),
        above_1_1x=_share(of_listed > BAD_SLOWDOWN),
        above_2x=_share(of_listed > 2),
        top3_slowdown=None if three is None else _geometric_mean(three[np.isfinite(three)]),
        top3_not_listed=None if three is None else _share(~np.isfinite(three)),
    )


@dataclass(frozen=True)
class Delivered:
    """What a user gets who accepts some picks and measures the top three of the others.

    `risk` is the share of bad picks (slower than 1.10 times the best, or not listed) among the
    accepted, `risk_by_shape` the mean of that share over shapes, which is what a calibrated
    threshold promises; `measured` is the share of problems that is measured, `slowdown` the
    geometric mean over listed outcomes.
    """

    stated_risk: float
    coverage: float
    risk: float
    risk_by_shape: float
    measured: float
    slowdown: float

    def to_dict(self) -> dict[str, Any]:
        """Give the fields for JSON."""
        return asdict(self)


def delivered(
    best: Floats,
    picked: Floats,
    top3: Floats,
    accepted: npt.NDArray[np.bool_],
    stated_risk: float,
    shapes: npt.NDArray[Any],
) -> Delivered:
    """Score the mix of accepted picks and measured top threes.

    Parameters
    ----------
    best, picked, top3 : array of shape (problems,)
        Times: best known, of the pick, and best of the first three choices.
    accepted : array of bool, shape (problems,)
    stated_risk : float
        Risk that the picks were accepted at.
    shapes : array of shape (problems,)
        Equal for the problems of one shape.

    Examples
    --------
    >>> ones = np.ones(4)
    >>> picked = np.array([1.0, 1.2, 3.0, 1.0])
    >>> accepted = np.array([True, True, False, False])
    >>> outcome = delivered(ones, picked, ones, accepted, 0.05, np.arange(4))
    >>> outcome.coverage, outcome.risk, round(outcome.slowdown, 3)
    (0.5, 0.5, 1.047)
    """
    outcome = np.where(accepted, picked, top3) / best
    bad = picked / best > BAD_SLOWDOWN
    coverage = _share(accepted)
    return Delivered(
        stated_risk=stated_risk,
        coverage=coverage,
        risk=_share(bad[accepted]) if accepted.any() else 0.0,
        risk_by_shape=_mean_by(bad[accepted], shapes[accepted]),
        measured=1 - coverage,
        slowdown=_geometric_mean(outcome[np.isfinite(outcome)]),
    )


def _mean_by(flags: npt.NDArray[np.bool_], groups: npt.NDArray[Any]) -> float:
    if not len(flags):
        return 0.0
    _, group = np.unique(groups, return_inverse=True)
    return float((np.bincount(group, flags) / np.bincount(group)).mean())


def _share(flags: npt.NDArray[np.bool_]) -> float:
    return float(flags.mean()) if len(flags) else 0.0


def _geometric_mean(values: Floats) -> float:
    return float(np.exp(np.log(values).mean())) if len(values) else float("nan")
