"""Ranks the candidates of one direction. Asking needs numpy alone.

Two stages. The first gives each candidate a share, the estimated probability of winning, and a
time relative to the roofline. The second, the judge, looks at the first few together with the
problem and says how probably each is within 1.10 of the best, and what picking it would cost.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from math import exp, inf, log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretune.predictor.features.conv import FEATURE_NAMES
from foretune.predictor.rules import CellKey, cell_key

if TYPE_CHECKING:  # its import takes some milliseconds at start-up
    import numpy.typing as npt

    from foretune.predictor.forest import Forest
    from foretune.predictor.rules import CandidateRules

    Floats = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]

#: How many candidates, the first by share, get a time and are looked at by the judge.
JUDGED = 4
#: Log time over the roofline where there is no candidate: never a reason to pick another.
UNKNOWN_TIME = 5.0

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
    allowed_columns, last_columns : tuple of int
        The same as numbers of the candidates.
    known : bool
        Whether problems of its kind were learnt.
    outside : str
        Which of its features lies outside the training range; empty if none does.
    """

    allowed: Flags
    last: Flags
    allowed_columns: tuple[int, ...]
    last_columns: tuple[int, ...]
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
    _parts: dict[tuple[int, ...], Forest] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _admissions: dict[tuple[object, ...], Admission] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

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
        kind = cell_key(raw)
        outside = self.rules.outside(row)
        key = (kind, outside == "", may_run.tobytes(), naive.tobytes())
        found = self._admissions.get(key)
        if found is None:
            found = self._admissions[key] = self._admit(kind, not outside, may_run, naive)
        return found._replace(outside=outside) if outside else found

    def _admit(self, kind: CellKey, is_inside: bool, may_run: Flags, naive: Flags) -> Admission:
        cell = self.rules.cell(kind)
        listed = cell.allowed & may_run
        allowed = listed & (cell.winners | ~naive) if is_inside else listed & ~naive
        if not allowed.any():
            allowed = listed if listed.any() else may_run
        last = listed & ~allowed
        return Admission(allowed, last, _columns(allowed), _columns(last), cell.known, "")

    def assess_one(self, row: npt.NDArray[np.float32], admission: Admission) -> list[Ranked]:
        """Rank the candidates of one problem as `assess` does, in plain Python, which is quicker.

        Parameters
        ----------
        row : array of shape (features,)
        admission : Admission
            Of `admit`.
        """
        columns = admission.allowed_columns
        width = min(JUDGED, len(self.candidates))
        shares = self._part(columns).predict_one(row).tolist()
        highest = max(shares)
        weights = [exp(share - highest) for share in shares]
        total = sum(weights)
        above = highest + log(total)
        log_shares = [max(share - above, _OUT) for share in shares]
        entropy = -sum([w / total * share for w, share in zip(weights, log_shares, strict=True)])
        # The shortlist, and its order by share over time.
        first = sorted(zip([-share for share in log_shares], columns, strict=True))[:width]
        placed = []
        for negated, column in first:
            time = self._time(column, row)
            placed.append((time + negated, column, -negated, time))
        placed.sort()
        for column in admission.last_columns[: width - len(placed)]:
            placed.append((-2 * _OUT, column, _OUT, self._time(column, row)))
        rows = _rows_one(placed, width, entropy, len(columns), row)
        ranked = []
        for place, (odds, cost) in enumerate(self.judge.predict(rows).tolist()):
            _, column, _, time = placed[place]
            if place < len(first):
                ranked.append((cost, Ranked(column, 1 / (1 + exp(-odds)), time)))
            else:
                ranked.append((inf, Ranked(column, 0.0, time)))
        ranked.sort(key=_cost)
        return [answer for _, answer in ranked]

    def assess(self, rows: npt.NDArray[np.float32], allowed: Flags, last: Flags) -> Assessment:
        """Rank candidates.

        Parameters
        ----------
        rows : array of shape (problems, features)
        allowed, last : array of shape (problems, candidates)
            Of `admit`.
        """
        count = len(self.candidates)
        shares = self._part(tuple(range(count))).predict(rows)
        short = shortlist(shares, allowed, last)
        times = np.full(short.order.shape, UNKNOWN_TIME)
        for column in range(count):
            problem, place = np.nonzero((short.order == column) & short.admitted)
            times[problem, place] = self._part((count + column,)).predict(rows[problem])[:, 0]
        judged = judge_rows(short, times, rows)
        verdict = self.judge.predict(judged.rows).reshape(*judged.order.shape, 2)
        at = np.arange(len(rows))[:, None]
        good = np.where(judged.allowed, 1 / (1 + np.exp(-verdict[..., 0])), 0.0)
        again = np.argsort(np.where(judged.allowed, verdict[..., 1], np.inf), 1, kind="stable")
        return Assessment(judged.order[at, again], good[at, again], judged.times[at, again])

    def _time(self, column: int, row: npt.NDArray[np.float32]) -> float:
        return float(self._part((len(self.candidates) + column,)).predict_one(row)[0])

    def _part(self, outputs: tuple[int, ...]) -> Forest:
        """Give some outputs of the first stage; most are of no use to most problems."""
        part = self._parts.get(outputs)
        if part is None:
            part = self._parts[outputs] = self.first.of_outputs(outputs)
        return part


def _columns(flags: Flags) -> tuple[int, ...]:
    return tuple(np.flatnonzero(flags).tolist())


def _cost(ranked: tuple[float, Ranked]) -> float:
    return ranked[0]


class Shortlist(NamedTuple):
    """First few candidates of problems by share; arrays of shape (problems, judged candidates).

    Attributes
    ----------
    order : array of int
        Candidates.
    log_shares : array
    allowed : array of bool
    admitted : array of bool
        Allowed, or to come last. Places after them are empty, whatever `order` says.
    entropy, several : array of shape (problems,)
        Entropy of the shares, and how many candidates are allowed.
    """

    order: npt.NDArray[np.intp]
    log_shares: Floats
    allowed: Flags
    admitted: Flags
    entropy: Floats
    several: npt.NDArray[np.intp]


def shortlist(shares: Floats, allowed: Flags, last: Flags | None = None) -> Shortlist:
    """Take the first few candidates by share.

    Only these get a time and are judged: the others are hardly ever the best, and a time for each
    candidate was more than half of all trees.

    Parameters
    ----------
    shares : array of shape (problems, candidates)
        Raw scores of winning.
    allowed : array of shape (problems, candidates)
    last : array of shape (problems, candidates), optional
        Candidates to put after the allowed ones.
    """
    scores = np.where(allowed, shares, -np.inf)
    scores = scores - scores.max(axis=1, keepdims=True)
    weights = np.exp(scores)
    total = weights.sum(axis=1, keepdims=True)
    log_shares = np.maximum(scores - np.log(total), _OUT)
    entropy = -(weights / total * log_shares).sum(axis=1)
    admitted = allowed if last is None else allowed | last
    place = np.where(allowed, log_shares, np.where(admitted, 2 * _OUT, 3 * _OUT))
    order = np.argsort(-place, axis=1, kind="stable")[:, :JUDGED]
    at = np.arange(len(order))[:, None]
    return Shortlist(
        order,
        log_shares[at, order],
        allowed[at, order],
        admitted[at, order],
        entropy,
        allowed.sum(axis=1),
    )


class Judged(NamedTuple):
    """A shortlist by share over time, and the judge's rows of it.

    Attributes
    ----------
    order, times, allowed : array of shape (problems, judged candidates)
    rows : array of shape (problems * judged candidates, judge features)
    """

    order: npt.NDArray[np.intp]
    times: Floats
    allowed: Flags
    rows: npt.NDArray[np.float32]


def judge_rows(short: Shortlist, times: Floats, rows: npt.NDArray[np.float32]) -> Judged:
    """Put the shortlisted candidates side by side.

    Parameters
    ----------
    short : Shortlist
    times : array of shape (problems, judged candidates)
        Log times over the roofline.
    rows : array of shape (problems, features)
    """
    merit = np.where(short.allowed, short.log_shares - times, 2 * _OUT)
    place = np.where(short.allowed | ~short.admitted, merit, 1.5 * _OUT)
    again = np.argsort(-place, axis=1, kind="stable")
    at = np.arange(len(again))[:, None]
    order, log_p, best = short.order[at, again], short.log_shares[at, again], merit[at, again]
    admitted = short.admitted[at, again]
    time = np.where(admitted, times[at, again], UNKNOWN_TIME)
    named = np.where(admitted, order, -1)
    width = order.shape[1]
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
    own[5] = short.entropy[:, None]
    own[6] = _RANKS[:width]
    own[7] = named
    own[8] = named[:, :1]
    own[8, :, 0] = named[:, min(1, width - 1)]
    own[9] = (p[:, None, :] * (gap < -0.1)).sum(axis=2)
    own[10] = (p[:, None, :] * (np.abs(gap) < 0.1)).sum(axis=2)
    own[11] = short.several[:, None]
    judged[:, :, _OWN : _OWN + width] = log_p[:, None, :]
    judged[:, :, _OWN + width : _OWN + 2 * width] = gap
    judged[:, :, _OWN + 2 * width :] = rows[:, None, _JUDGE_AT]
    return Judged(order, time, short.allowed[at, again], judged.reshape(-1, judged.shape[2]))


def _rows_one(
    placed: list[tuple[float, int, float, float]],
    width: int,
    entropy: float,
    several: int,
    row: npt.NDArray[np.float32],
) -> npt.NDArray[np.float32]:
    """Rows of `judge_rows` for the candidates of one problem.

    `placed` holds, the best first, share over time (negated logarithm), candidate, log share and
    log time.
    """
    empty = width - len(placed)
    log_p = [entry[2] for entry in placed] + [_OUT] * empty
    time = [entry[3] for entry in placed] + [UNKNOWN_TIME] * empty
    merit = [-entry[0] for entry in placed] + [2 * _OUT] * empty
    p = [exp(share) for share in log_p]
    leader = placed[0][1]
    runner_up = placed[1][1] if len(placed) > 1 else -1
    if width == 1:
        # Without a rival, what `judge_rows` takes for one.
        runner_up, rivals = leader, (_OUT, time[0] - _OUT, 2 * _OUT)
    else:
        rivals = (sorted(log_p)[-2], sorted(time)[1], merit[1])
    # The best of the others is the best of all, or the second for the best itself.
    best_share, best_time = max(log_p), min(time)
    numbers = []
    for rank, (_, column, share, own_time) in enumerate(placed):
        gap = [other - own_time for other in time]
        ahead = near = 0.0
        for weight, difference in zip(p, gap, strict=True):
            if difference < -0.1:
                ahead += weight
            elif difference < 0.1:
                near += weight
        numbers += [
            share,
            share - (rivals[0] if share == best_share else best_share),
            (rivals[1] if own_time == best_time else best_time) - own_time,
            own_time,
            merit[rank] - (merit[0] if rank else rivals[2]),
            entropy,
            rank,
            column,
            leader if rank else runner_up,
            ahead,
            near,
            several,
            *log_p,
            *gap,
        ]
    judged = np.empty((len(placed), _OWN + 2 * width + len(_JUDGE_AT)), np.float32)
    judged[:, : -len(_JUDGE_AT)] = np.frombuffer(array("f", numbers), np.float32).reshape(
        len(placed), -1
    )
    judged[:, -len(_JUDGE_AT) :] = row[_JUDGE_AT]
    return judged
