"""Trains a ranking of candidates. Needs the extra `train`.

The judge must learn from first-stage answers as they are on shapes never seen, so the first stage
is trained once for each fold of the training shapes, to answer for that fold, and once on all of
them, to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from os import cpu_count

import lightgbm
import numpy as np
import numpy.typing as npt

from foretune.errors import InputError
from foretune.predictor.boosting import (
    TreeSettings,
    soft_labels,
    train_regression,
    train_soft_multiclass,
)
from foretune.predictor.compare import BAD_SLOWDOWN
from foretune.predictor.dataset import RankingData
from foretune.predictor.features.conv import ROOFLINE_AT
from foretune.predictor.forest import Forest
from foretune.predictor.ranking import UNKNOWN_TIME, RankingModel, judge_rows, shortlist
from foretune.predictor.rules import CandidateRules, cell_key
from foretune.predictor.split import fold_of

Floats = npt.NDArray[np.float64]


_SHARES = TreeSettings(300, leaves=7)
_TIMES = TreeSettings(400, leaves=7)
_JUDGE = TreeSettings(100, leaves=15, learning_rate=0.07, min_rows=40, feature_fraction=0.7)


@dataclass(frozen=True)
class RankingSettings:
    """How a ranking is trained; LEARNINGS says what was tried.

    Attributes
    ----------
    shares, times, judge : TreeSettings
        Trees of the winning shares, of the times and of the judge.
    temperature : float
        Log slowdown over which a candidate's share falls to 1/e.
    least_listings : int
        Candidates listed less often are left out.
    folds : int
        Parts of the training shapes for first-stage answers on shapes not seen.
    unlisted_cost, most_cost : float
        Log slowdowns that the judge is taught for candidates that aren't listed, and at most.
    """

    shares: TreeSettings = _SHARES
    times: TreeSettings = _TIMES
    judge: TreeSettings = _JUDGE
    temperature: float = 0.05
    least_listings: int = 20
    folds: int = 2
    unlisted_cost: float = float(np.log(2))
    most_cost: float = float(np.log(3))


@dataclass(frozen=True)
class _FirstStage:
    """First stage as LightGBM text, to send between processes."""

    shares: str
    start: Floats
    times: tuple[str, ...]
    answers: Floats

    def forest(self) -> Forest:
        candidates = len(self.times)
        return Forest.from_lightgbm(
            [self.shares, *self.times],
            bias=np.concatenate([self.start, np.zeros(candidates)]),
        )


Progress = Callable[[str, int, int], None]


class RankingTrainer:
    """Trains the rankings of several directions side by side.

    Parameters
    ----------
    settings : RankingSettings, optional
    workers : int, default 0
        Processes, one thread each (LightGBM jobs of several threads stall each other on small
        machines). 0 takes the machine's processors. The result doesn't depend on it.
    """

    def __init__(self, settings: RankingSettings | None = None, workers: int = 0) -> None:
        self.settings = settings or RankingSettings()
        self.workers = workers or cpu_count() or 1

    def train(
        self, parts: dict[str, RankingData], on_progress: Progress | None = None
    ) -> dict[str, RankingModel]:
        """Train on records; all of them are training records.

        Parameters
        ----------
        parts : dict
            Direction -> its records.
        on_progress : callable, optional
            Called with a text, steps done and steps in all.

        Returns
        -------
        dict
            Direction -> model.
        """
        settings = self.settings
        tell = on_progress or (lambda _text, _done, _all: None)
        total = len(parts) * (settings.folds + 2)
        trained: dict[str, RankingModel] = {}
        done = 0
        with _pool(self.workers) as pool:
            waiting: dict[str, list[Future[_FirstStage]]] = {}
            prepared = {name: _common(data, settings) for name, data in parts.items()}
            for name, data in prepared.items():
                rows = data.features()
                waiting[name] = [
                    pool.submit(_train_first, data, rows, fold, settings)
                    for fold in (None, *range(settings.folds))
                ]
            for name, futures in waiting.items():
                data = prepared[name]
                rows = data.features()
                stages = []
                for future in futures:
                    stages.append(future.result())
                    done += 1
                    tell(f"solver ranking {name}", done, total)
                answers = np.empty((len(data), 2 * len(data.candidates)))
                folds = _folds(data, settings)
                for fold, stage in enumerate(stages[1:]):
                    answers[folds == fold] = stage.answers
                trained[name] = _finish(data, rows, stages[0], answers, settings)
                done += 1
                tell(f"solver ranking {name}", done, total)
        return trained


def _common(data: RankingData, settings: RankingSettings) -> RankingData:
    if len(np.unique(_folds(data, settings))) < settings.folds:
        raise InputError(
            f"too few shapes of direction {data.direction} to train on: {settings.folds} folds "
            "need some each"
        )
    listings = np.isfinite(data.times).sum(axis=0)
    least = min(settings.least_listings, int(listings.max()))
    return data.keep_candidates(listings >= least)


def _folds(data: RankingData, settings: RankingSettings) -> npt.NDArray[np.int64]:
    return np.array([fold_of(position, settings.folds) for position in data.position])


def _train_first(
    data: RankingData,
    rows: npt.NDArray[np.float32],
    fold: int | None,
    settings: RankingSettings,
) -> _FirstStage:
    folds = _folds(data, settings)
    inside = np.ones(len(data), bool) if fold is None else folds != fold
    taught = rows[inside]
    times = data.times[inside]
    booster, start = train_soft_multiclass(
        taught, soft_labels(times, settings.temperature), settings.shares
    )
    roofline = taught[:, ROOFLINE_AT].astype(np.float64) * np.log(2)
    asked = rows[~inside]
    answers = [_raw_scores(booster, asked, len(start)) + start]
    texts = []
    for column in range(len(data.candidates)):
        listed = np.isfinite(times[:, column])
        if not listed.any():
            # All its listings are in the fold that is left out.
            answers.append(np.full((len(asked), 1), UNKNOWN_TIME))
            continue
        target = np.log(times[listed, column]) - roofline[listed]
        regressor = train_regression(taught[listed], target, settings.times)
        answers.append(_raw_scores(regressor, asked, 1))
        texts.append(regressor.model_to_string())
    return _FirstStage(booster.model_to_string(), start, tuple(texts), np.hstack(answers))


def _raw_scores(booster: lightgbm.Booster, rows: npt.NDArray[np.float32], outputs: int) -> Floats:
    if not len(rows):
        return np.empty((0, outputs))
    return np.asarray(booster.predict(rows, raw_score=True)).reshape(len(rows), outputs)


def _finish(
    data: RankingData,
    rows: npt.NDArray[np.float32],
    stage: _FirstStage,
    answers: Floats,
    settings: RankingSettings,
) -> RankingModel:
    rules = CandidateRules.learn(data, rows)
    allowed = np.array([rules.cell(cell_key(raw)).allowed for raw in data.raw.tolist()])
    count = len(data.candidates)
    short = shortlist(answers[:, :count], allowed)
    times = np.take_along_axis(answers[:, count:], short.order, axis=1)
    judged = judge_rows(short, times, rows)
    # Places that no candidate fills teach nothing.
    filled = judged.allowed.ravel()
    slowdown = np.take_along_axis(data.times, judged.order, axis=1) / data.best[:, None]
    slowdown = slowdown.ravel()[filled]
    taught = judged.rows[filled]
    good = (slowdown <= BAD_SLOWDOWN).astype(np.float64)
    cost = np.where(
        np.isfinite(slowdown),
        np.minimum(np.log(slowdown), settings.most_cost),
        settings.unlisted_cost,
    )
    judge = Forest.from_lightgbm(
        [
            train_regression(taught, good, settings.judge, "binary"),
            train_regression(taught, cost, settings.judge),
        ]
    )
    return RankingModel(data.candidates, stage.forest(), judge, rules)


@contextmanager
def _pool(workers: int) -> Iterator[Executor]:
    # "spawn", because forking a process whose OpenMP has started can hang it.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield pool
