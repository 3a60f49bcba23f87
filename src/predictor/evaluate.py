"""Answers of a ranking on recorded problems, beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretune.predictor.compare import BAD_SLOWDOWN, Delivered, Score, delivered, score_picks
from foretune.predictor.dataset import RankingData
from foretune.predictor.ranking import RankingModel

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Outcomes:
    """What picks came to; arrays of shape (problems,).

    Attributes
    ----------
    best : array
        Best time recorded among the candidates that could run.
    picked : array
        Time of the pick, infinite where it isn't listed.
    top3 : array
        Best time of the first three choices.
    score : array
        Probability of being good that the model gave its pick.
    sure : array of bool
        Whether the rules leave acceptance open (kind known, inside the training range).
    pick : array of int
        Candidate of the model.
    shape : array
        Place of the shape in the split; equal for the problems of one shape.
    """

    best: Floats
    picked: Floats
    top3: Floats
    score: Floats
    sure: Flags
    pick: npt.NDArray[np.intp]
    shape: Floats

    @property
    def bad(self) -> Flags:
        """Picks slower than 1.10 times the best, or not listed."""
        return np.asarray(self.picked / self.best > BAD_SLOWDOWN)

    def take(self, rows: Flags) -> Outcomes:
        """Keep some problems."""
        return Outcomes(
            self.best[rows],
            self.picked[rows],
            self.top3[rows],
            self.score[rows],
            self.sure[rows],
            self.pick[rows],
            self.shape[rows],
        )

    @classmethod
    def join(cls, parts: Sequence[Outcomes]) -> Outcomes:
        """Put outcomes, of several directions for example, together."""
        return cls(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in cls.__dataclass_fields__
            )
        )

    def summary(self) -> Score:
        """Score the picks."""
        return score_picks(self.best, self.picked, self.top3)

    def delivered(self, accepted: Flags, risk: float) -> Delivered:
        """Score what is delivered when some picks are accepted."""
        return delivered(self.best, self.picked, self.top3, accepted, risk, self.shape)


def evaluate(
    model: RankingModel, data: RankingData, may_run: Flags, naive: Flags
) -> tuple[Outcomes, npt.NDArray[np.intp]]:
    """Ask the model about recorded problems.

    Parameters
    ----------
    model : RankingModel
    data : RankingData
        Its candidates may differ from the model's; those that the caller can't run must have been
        left out.
    may_run, naive : array of bool, shape (model's candidates,)

    Returns
    -------
    outcomes : Outcomes
    order : array of shape (problems, judged candidates)
    """
    rows = data.features()
    admissions = [
        model.admit(raw, row, may_run, naive)
        for raw, row in zip(data.raw.tolist(), rows, strict=True)
    ]
    allowed = np.array([admission.allowed for admission in admissions], bool)
    allowed = allowed.reshape(len(data), len(model.candidates))
    last = np.array([admission.last for admission in admissions], bool).reshape(allowed.shape)
    assessed = model.assess(rows, allowed, last)
    column = {name: i for i, name in enumerate(data.candidates)}
    times = np.full((len(data), len(model.candidates)), np.inf)
    for index, name in enumerate(model.candidates):
        if name in column:
            times[:, index] = data.times[:, column[name]]
    at = np.arange(len(data))[:, None]
    could_run = (allowed | last)[at, assessed.order]
    reached = np.where(could_run, times[at, assessed.order], np.inf)
    outcomes = Outcomes(
        data.best,
        reached[:, 0],
        reached[:, :3].min(axis=1),
        assessed.good[:, 0],
        np.array([a.known and not a.outside for a in admissions], bool),
        assessed.order[:, 0],
        data.position,
    )
    return outcomes, assessed.order
