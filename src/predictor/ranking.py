"""Ranks the candidates of one direction. Asking needs numpy alone.

Two stages. The first gives each candidate a share, the estimated probability of winning, and a
time relative to the roofline. The second, the judge, looks at the first few together with the
problem and says how probably each is within 1.10 of the best, and what picking it would cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretune.predictor.features.conv import FEATURE_NAMES

if TYPE_CHECKING:  # its import takes some milliseconds at start-up
    import numpy.typing as npt

    from foretune.predictor.forest import Forest
    from foretune.predictor.rules import CandidateRules

    Floats = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]

#: How many of the first stage's candidates the judge looks at.
JUDGED = 4

#: Problem features that the judge sees beside the first stage's answers.
JUDGE_FEATURES = (
    "dtype channels_last is_3d log_flops log_traffic roofline gemm_m gemm_n gemm_k batch "
    "in_channels_group out_channels_group taps out_px in_px math_per_memory waves_128x128 groups "
    "stride_h pad_h align_cg align_kg image_waves wave_fill_128x128 compute_units"
).split()
_JUDGE_AT = np.array([FEATURE_NAMES.index(name) for name in JUDGE_FEATURES])
_OUT = -30.0
_NOT_SELF = ~np.eye(JUDGED, dtype=bool)
_RANKS = np.arange(JUDGED)
# Columns of a judge's row that tell of its candidate alone.
_OWN = 12


class Admission(NamedTuple):
    """What the rules say of a problem.

    Attributes
    ----------
    allowed : array of bool, shape (candidates,)
    last : array of bool, shape (candidates,)
        Candidates that could run but are not trusted here; they come after all that are allowed.
    known : bool
        Whether problems of its kind were learnt.
    outside : str
        Which of its features lies outside the training range; empty if none does.
    """

    allowed: Flags
    last: Flags
    known: bool
    outside: str


class Ranked(NamedTuple):
    """A candidate of one problem, with the fields of an `Assessment`."""

    candidate: int
    good: float
    log_time: float


class Assessment(NamedTuple):
    """First few candidates of problems, the best first; arrays of shape (problems, candidates).

    Attributes
    ----------
    order : array of int
        Candidates.
    good : array
        Probability of being within 1.10 of the best; 0 for candidates that are not allowed, which
        come after the others.
    log_time : array
        Natural logarithm of the predicted time over the roofline time.
    """

    order: npt.NDArray[np.intp]
    good: Floats
    log_time: Floats


@dataclass(frozen=True)
class RankingModel:
    """What was learnt of one direction.

    Attributes
    ----------
    candidates : tuple of str
    first : Forest
        A raw share for each candidate, then a log time for each.
    judge : Forest
        For a row of `judge_rows`: log-odds of being good, and the cost of picking it.
    rules : CandidateRules
    """

    candidates: tuple[str, ...]
    first: Forest
    judge: Forest
    rules: CandidateRules

    def admit(
        self, raw: list[float], row: npt.NDArray[np.float32], may_run: Flags, naive: Flags
    ) -> Admission:
        """Rule out candidates.

        A naive candidate is admitted only inside the training range and where it won some such
        problem in training, unless nothing else is left.

        Parameters
        ----------
        raw : list of float
            The problem's raw numbers.
        row : array of shape (features,)
        may_run, naive : array of bool, shape (candidates,)
            Candidates that the caller can run, and those that only compute, slowly.
        """
        cell = self.rules.cell(raw)
        outside = self.rules.outside(row)
        listed = cell.allowed & may_run
        allowed = listed & ~naive if outside else listed & (cell.winners | ~naive)
        if not allowed.any():
            allowed = listed if listed.any() else may_run
        return Admission(allowed, listed & ~allowed, cell.known, outside)

    def assess_one(self, row: npt.NDArray[np.float32], admission: Admission) -> list[Ranked]:
        """Rank the candidates of one problem as `assess` does, in plain Python, which is quicker.

        Parameters
        ----------
        row : array of shape (features,)
        admission : Admission
            Of `admit`.
        """
        answers = self.first.predict_one(row).tolist()
        count = len(self.candidates)
        times = answers[count:]
        allowed, last = admission.allowed.tolist(), admission.last.tolist()
        order, rows = _judge_one(answers[:count], times, allowed, last, row)
        ranked = []
        for column, (odds, cost) in zip(order, self.judge.predict(rows).tolist(), strict=True):
            if allowed[column]:
                ranked.append((cost, Ranked(column, 1 / (1 + exp(-odds)), times[column])))
            elif last[column]:
                ranked.append((inf, Ranked(column, 0.0, times[column])))
        ranked.sort(key=lambda pair: pair[0])
        return [answer for _, answer in ranked]

    def assess(self, rows: npt.NDArray[np.float32], allowed: Flags, last: Flags) -> Assessment:
        """Rank candidates.

        Parameters
        ----------
        rows : array of shape (problems, features)
        allowed, last : array of shape (problems, candidates)
            Of `admit`.
        """
        answers = self.first.predict(rows)
        count = len(self.candidates)
        shares, times = answers[:, :count], answers[:, count:]
        judged = judge_rows(shares, times, allowed, rows, last)
        order = judged.order
        verdict = self.judge.predict(judged.rows).reshape(*order.shape, 2)
        at = np.arange(len(order))[:, None]
        admitted = allowed[at, order]
        good = np.where(admitted, 1 / (1 + np.exp(-verdict[..., 0])), 0.0)
        again = np.argsort(np.where(admitted, verdict[..., 1], np.inf), axis=1, kind="stable")
        order = order[at, again]
        return Assessment(order, good[at, again], times[at, order])


class Judged(NamedTuple):
    """First few candidates of problems by the first stage, and the judge's rows of them."""

    order: npt.NDArray[np.intp]
    rows: npt.NDArray[np.float32]


def judge_rows(
    shares: Floats,
    times: Floats,
    allowed: Flags,
    rows: npt.NDArray[np.float32],
    last: Flags | None = None,
) -> Judged:
    """Put the first few candidates side by side.

    Parameters
    ----------
    shares : array of shape (problems, candidates)
        Raw scores of winning.
    times : array of shape (problems, candidates)
        Log times over the roofline.
    allowed : array of shape (problems, candidates)
    rows : array of shape (problems, features)
    last : array of shape (problems, candidates), optional
        Candidates to put after the allowed ones.

    Returns
    -------
    Judged
        Rows of shape (problems * JUDGED, judge features).
    """
    scores = np.where(allowed, shares, _OUT)
    scores = scores - scores.max(axis=1, keepdims=True)
    weights = np.exp(scores)
    total = weights.sum(axis=1, keepdims=True)
    log_share = np.maximum(scores - np.log(total), _OUT)
    entropy = -(weights / total * log_share).sum(axis=1)
    merit = np.where(allowed, log_share - times, 2 * _OUT)
    width = min(JUDGED, merit.shape[1])
    place = merit if last is None else np.where(last, 1.5 * _OUT, merit)
    order = np.argsort(-place, axis=1, kind="stable")[:, :width]
    at = np.arange(len(order))[:, None]
    log_p, time, best = log_share[at, order], times[at, order], merit[at, order]
    p = np.exp(log_p)
    others = _NOT_SELF[:width, :width]
    gap = time[:, None, :] - time[:, :, None]
    judged = np.empty((*order.shape, _OWN + 2 * width + len(_JUDGE_AT)), np.float32)
    own = np.moveaxis(judged, 2, 0)
    own[0] = log_p
    own[1] = log_p - np.where(others, log_p[:, None, :], _OUT).max(axis=2)
    own[2] = np.where(others, gap, -_OUT).min(axis=2)
    own[3] = time
    own[4] = best - np.where(others, best[:, None, :], 2 * _OUT).max(axis=2)
    own[5] = entropy[:, None]
    own[6] = _RANKS[:width]
    own[7] = order
    own[8] = order[:, :1]
    own[8, :, 0] = order[:, min(1, width - 1)]
    own[9] = (p[:, None, :] * (gap < -0.1)).sum(axis=2)
    own[10] = (p[:, None, :] * (np.abs(gap) < 0.1)).sum(axis=2)
    own[11] = allowed.sum(axis=1)[:, None]
    judged[:, :, _OWN : _OWN + width] = log_p[:, None, :]
    judged[:, :, _OWN + width : _OWN + 2 * width] = gap
    judged[:, :, _OWN + 2 * width :] = rows[:, None, _JUDGE_AT]
    return Judged(order, judged.reshape(-1, judged.shape[2]))


def _judge_one(
    shares: list[float],
    times: list[float],
    allowed: list[bool],
    last: list[bool],
    row: npt.NDArray[np.float32],
) -> tuple[list[int], npt.NDArray[np.float32]]:
    scores = [share if good else _OUT for share, good in zip(shares, allowed, strict=True)]
    highest = max(scores)
    weights = [exp(score - highest) for score in scores]
    total = sum(weights)
    above = highest + log(total)
    log_share = [max(score - above, _OUT) for score in scores]
    entropy = -sum(w / total * share for w, share in zip(weights, log_share, strict=True))
    columns = range(len(shares))
    merit = [log_share[i] - times[i] if allowed[i] else 2 * _OUT for i in columns]
    place = [-1.5 * _OUT if last[i] else -merit[i] for i in columns]
    order = sorted(columns, key=place.__getitem__)[:JUDGED]
    log_p, time = [log_share[i] for i in order], [times[i] for i in order]
    p = [exp(share) for share in log_p]
    best = [merit[i] for i in order]
    several = sum(allowed)
    judged = np.empty((len(order), _OWN + 2 * len(order) + len(_JUDGE_AT)), np.float32)
    judged[:, -len(_JUDGE_AT) :] = row[_JUDGE_AT]
    heads = []
    for rank, column in enumerate(order):
        gap = [other - time[rank] for other in time]
        others = [i for i in range(len(order)) if i != rank]
        heads.append(
            [
                log_p[rank],
                log_p[rank] - max([log_p[i] for i in others], default=_OUT),
                min([gap[i] for i in others], default=-_OUT),
                time[rank],
                best[rank] - max([best[i] for i in others], default=2 * _OUT),
                entropy,
                rank,
                column,
                order[0] if rank else order[min(1, len(order) - 1)],
                sum(p[i] for i in others if gap[i] < -0.1),
                sum(share for share, ahead in zip(p, gap, strict=True) if -0.1 < ahead < 0.1),
                several,
                *log_p,
                *gap,
            ]
        )
    judged[:, : -len(_JUDGE_AT)] = heads
    return order, judged
