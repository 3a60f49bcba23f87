"""Trains the forests and the portfolio of a candidate model. Needs the extra `train`.

Everything is trained once on all shapes, to keep, and once for each fold of the shapes without
them, to answer for that fold. From those answers the judge learns, thresholds are calibrated, and
the figures of the model card are taken: none of them has seen the shapes that it answers for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt

from foretune.errors import InputError
from foretune.kernels.registry import solvers as all_solvers
from foretune.predictor.boosting import TreeSettings, train_lambdarank, train_regression
from foretune.predictor.compare import BAD_SLOWDOWN
from foretune.predictor.forest import Forest
from foretune.predictor.kernels.dataset import CandidateTrials
from foretune.predictor.kernels.features import CandidateTable, ProblemView, parse_config
from foretune.predictor.kernels.model import (
    CandidateRanker,
    Guess,
    Portfolio,
    Trust,
    kind_of,
    ranged,
)
from foretune.predictor.kernels.neighbours import Neighbours, coordinates

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.float32]

_NUMBERS = TreeSettings(200, leaves=11, learning_rate=0.08, min_rows=8)
_ORDERS = TreeSettings(200, leaves=11, learning_rate=0.08, min_rows=8)
_TIMES = TreeSettings(200, leaves=15, min_rows=8)
_JUDGE = TreeSettings(60, leaves=4, learning_rate=0.06, min_rows=15)


@dataclass(frozen=True)
class CandidateSettings:
    """How a candidate model is trained; LEARNINGS says what was tried.

    Attributes
    ----------
    orders, numbers, times, judge : TreeSettings
        Trees of its forests: log slowdowns by order and as numbers, times, and the judge.
    fast : int
        Trials of a task, its fastest, that are all learnt; of the others every third is.
    most_loss : float
        Log slowdown beyond which it makes no difference.
    relevances, sharpness, truncation : int, float, int
        The best is worth so much to the order, others fall to 1/e over such a log slowdown, and
        so many places count.
    focus : float
        Log slowdown over which a trial's weight falls to 1/e: who is slow need not be told apart.
    listed : int
        Candidates that each task names for those that are like it.
    least_tasks : int
        Tasks that must have measured a candidate before it is named.
    unmeasured : float
        Log slowdown that is added to a prediction where nothing was measured, when a task's
        candidates are chosen.
    judged : int
        Candidates of an answer that the judge learns from.
    folds : int
    least_shapes : int
        Shapes of a kind without which no answer is accepted.
    """

    orders: TreeSettings = _ORDERS
    numbers: TreeSettings = _NUMBERS
    times: TreeSettings = _TIMES
    judge: TreeSettings = _JUDGE
    fast: int = 48
    most_loss: float = 1.5
    relevances: int = 30
    sharpness: float = 0.2
    truncation: int = 16
    focus: float = 0.7
    listed: int = 24
    least_tasks: int = 2
    unmeasured: float = 0.05
    judged: int = 8
    folds: int = 6
    least_shapes: int = 3


Progress = Callable[[str, int, int], None]


def losses(trials: CandidateTrials, most: float) -> Floats:
    """Log slowdown of each trial against the best of its task, at most so large."""
    with np.errstate(invalid="ignore"):
        loss = np.log(trials.time_ms / trials.best[trials.task])
    return np.asarray(np.minimum(np.where(np.isnan(loss), most, loss), most))


class TaskFeatures:
    """Features of all trials, and what else is asked of a dataset's tasks again and again.

    Parameters
    ----------
    trials : CandidateTrials
    with_device : bool, default False
        Whether devices are among the features.

    Attributes
    ----------
    views : list of ProblemView
        One a task.
    rows : array of shape (trials, features)
    """

    def __init__(self, trials: CandidateTrials, *, with_device: bool = False) -> None:
        self.trials = trials
        self.with_device = with_device
        self.views = [
            ProblemView(problem, device, with_device=with_device)
            for problem, device in trials.tasks
        ]
        pairs = list(zip(trials.solver.tolist(), trials.config, strict=True))
        #: Different candidates, and the one of each trial.
        self.candidates = sorted(set(pairs))
        self.number = {pair: number for number, pair in enumerate(self.candidates)}
        self.candidate = np.array([self.number[pair] for pair in pairs], np.intp)
        parsed = [(solver, parse_config(config)) for solver, config in self.candidates]
        self.table = CandidateTable(trials.solvers, parsed)
        self.rows: Rows = np.empty((0, 0), np.float32)
        parts: list[tuple[npt.NDArray[np.intp], Rows]] = []
        for task, view in enumerate(self.views):
            of_task = np.flatnonzero(trials.task == task)
            parts.append((of_task, self.table.rows(view, self.candidate[of_task])))
        self.rows = np.empty((len(trials), parts[0][1].shape[1]), np.float32)
        for of_task, rows in parts:
            self.rows[of_task] = rows
        tried = np.zeros((len(trials.tasks), len(self.candidates)), bool)
        tried[trials.task, self.candidate] = True
        #: Whether each candidate is one of a task's spaces; only what several tasks tried counts.
        self.valid: Flags = np.stack(
            [_valid(trials, parsed, task) for task in range(len(trials.tasks))]
        ) & (tried.sum(axis=0) > 1)


def _valid(
    trials: CandidateTrials, candidates: Sequence[tuple[int, dict[str, int]]], task: int
) -> Flags:
    problem, device = trials.tasks[task]
    known = {solver.id: solver for solver in all_solvers(problem.operation)}
    spaces: dict[int, Any] = {}
    for place, name in enumerate(trials.solvers):
        solver = known.get(name)
        if solver is not None and solver.is_applicable(problem, device):
            spaces[place] = solver.bounds(problem, device)
    return np.array(
        [
            solver in spaces and spaces[solver].why_not(config) is None
            for solver, config in candidates
        ],
        bool,
    )


def train_ranker(
    features: TaskFeatures, inside: Flags, settings: CandidateSettings
) -> CandidateRanker:
    """Train on some tasks; without a judge, and without times, which no order needs.

    Parameters
    ----------
    features : TaskFeatures
    inside : array of bool, shape (tasks,)
        Tasks to learn from.
    settings : CandidateSettings
    """
    trials = features.trials
    taught = _worth_learning(trials, inside, settings.fast)
    rows, loss = features.rows[taught], losses(trials, settings.most_loss)
    said = _train_losses(rows, loss[taught], trials.task[taught], settings)
    portfolio, neighbours = _portfolio(features, inside, loss, said, settings)
    return CandidateRanker(
        portfolio,
        neighbours,
        Forest.from_lightgbm(said.orders),
        said.scale,
        Forest.from_lightgbm(said.numbers),
        None,
        None,
        features.with_device,
    )


@dataclass(frozen=True)
class _Losses:
    """Log slowdowns, learnt twice: by their order within each task, and as numbers.

    A regression knows how far the slow ones are behind and is rarely far off; a ranking spends all
    its trees on who comes first. Their mean is better than either.
    """

    orders: lightgbm.Booster
    numbers: lightgbm.Booster
    scale: tuple[float, float]

    def predict(self, rows: Rows) -> Floats:
        """Mean of what they say."""
        slope, offset = self.scale
        by_order = slope * np.asarray(self.orders.predict(rows)) + offset
        return np.asarray((by_order + np.asarray(self.numbers.predict(rows))) / 2)


def _train_losses(
    rows: Rows, loss: Floats, task: npt.NDArray[np.int64], settings: CandidateSettings
) -> _Losses:
    weights = np.exp(-loss / settings.focus) + 0.05
    relevance = np.rint(settings.relevances * np.exp(-loss / settings.sharpness)).astype(np.int64)
    groups = np.unique(task, return_counts=True)[1]
    numbers = train_regression(rows, loss, settings.numbers, weights=weights)
    orders = train_lambdarank(rows, relevance, groups, settings.orders, settings.truncation)
    by_number, by_order = (np.asarray(one.predict(rows)) for one in (numbers, orders))
    slope = -float(by_number.std() / by_order.std())
    return _Losses(orders, numbers, (slope, float(by_number.mean() - slope * by_order.mean())))


def train_times(features: TaskFeatures, settings: CandidateSettings) -> Forest:
    """Learn the times of all candidates that have one."""
    trials = features.trials
    rows = np.flatnonzero(trials.measured)
    roofline = np.array([view.log_roofline for view in features.views])
    target = np.log(trials.time_ms[rows]) - roofline[trials.task[rows]]
    return Forest.from_lightgbm([train_regression(features.rows[rows], target, settings.times)])


def _worth_learning(trials: CandidateTrials, inside: Flags, fast: int) -> npt.NDArray[np.intp]:
    """Take the fastest trials of each task, and of all others every third; task after task."""
    order = np.lexsort((trials.time_ms, trials.task))
    order = order[inside[trials.task[order]]]
    task = trials.task[order]
    first = np.searchsorted(task, task)
    rank = np.arange(len(order)) - first
    kept: npt.NDArray[np.intp] = order[(rank < fast) | (rank % 3 == 0)]
    return kept


def _portfolio(
    features: TaskFeatures,
    inside: Flags,
    loss: Floats,
    said: _Losses,
    settings: CandidateSettings,
) -> tuple[Portfolio, Neighbours]:
    """List the best candidates of each task, by predictions where nothing was measured."""
    tasks = np.flatnonzero(inside)
    costs = _costs(features, tasks, loss, said, settings)
    best = np.argsort(costs, axis=1, kind="stable")[:, : settings.listed]
    used, number = np.unique(best, return_inverse=True)
    candidates = [features.candidates[candidate] for candidate in used]
    portfolio = Portfolio(
        features.trials.solvers,
        tuple(solver for solver, _ in candidates),
        tuple(config for _, config in candidates),
    )
    rows = np.stack([features.views[task].row for task in tasks])
    listed: Any = number.reshape(best.shape).tolist()
    lists = tuple(map(tuple, listed))
    surprise, measured = _surprises(features, tasks, used, loss, said)
    return portfolio, Neighbours(coordinates(rows), lists, surprise, measured)


def _surprises(
    features: TaskFeatures,
    tasks: npt.NDArray[np.intp],
    used: npt.NDArray[np.intp],
    loss: Floats,
    said: _Losses,
) -> tuple[Rows, Rows]:
    """Losses less what the forests say, of the tasks' trials of the candidates in use."""
    trials = features.trials
    row = np.full(len(trials.tasks), -1)
    row[tasks] = np.arange(len(tasks))
    column = np.full(len(features.candidates), -1)
    column[used] = np.arange(len(used))
    at = np.flatnonzero((row[trials.task] >= 0) & (column[features.candidate] >= 0))
    surprise = np.zeros((len(tasks), len(used)), np.float32)
    measured = np.zeros_like(surprise)
    place = row[trials.task[at]], column[features.candidate[at]]
    surprise[place] = loss[at] - said.predict(features.rows[at])
    measured[place] = 1.0
    return np.round(surprise, 3), measured


def _costs(
    features: TaskFeatures,
    tasks: npt.NDArray[np.intp],
    loss: Floats,
    said: _Losses,
    settings: CandidateSettings,
) -> Floats:
    """Loss of every candidate on every task; infinite where it can't run."""
    trials = features.trials
    inside = np.isin(trials.task, tasks)
    known = np.full((len(trials.tasks), len(features.candidates)), np.nan)
    known[trials.task[inside], features.candidate[inside]] = loss[inside]
    often = np.isfinite(known).sum(axis=0) >= settings.least_tasks
    costs = np.full((len(tasks), len(features.candidates)), np.inf)
    for row, task in enumerate(tasks):
        unknown = np.flatnonzero(features.valid[task] & often & np.isnan(known[task]))
        if unknown.size:
            rows = features.table.rows(features.views[task], unknown)
            costs[row, unknown] = np.maximum(said.predict(rows), 0.0) + settings.unmeasured
        measured = np.isfinite(known[task]) & often
        costs[row, measured] = known[task, measured]
    return costs


@dataclass(frozen=True)
class Answer:
    """What a ranker said of a task that it had not seen.

    Attributes
    ----------
    task : int
    guess : Guess
    keys : list of str
        The candidates with a time, in its order.
    slowdown : list of float
        Their slowdowns against the task's best.
    judge_rows : array
        Of the first of them.
    unrecorded : int
        Candidates that can run, ranked before the first with a time.
    wanted : list of str
        The first of those that can run and were not measured, among the first of all that can.
    replayed : list of float
        Slowdowns of the first four, when all that was measured is ranked, listed or not.
    is_sure : bool
        Whether what was learnt leaves acceptance open (kind known, inside the ranges).
    """

    task: int
    guess: Guess
    keys: list[str]
    slowdown: list[float]
    judge_rows: Rows
    unrecorded: int
    wanted: list[str]
    replayed: list[float]
    is_sure: bool


def answer(
    ranker: CandidateRanker,
    trust: Trust,
    features: TaskFeatures,
    task: int,
    times: dict[tuple[int, str], float],
    settings: CandidateSettings,
) -> Answer | None:
    """Ask a ranker about a task; None if nothing that it ranks was measured.

    Parameters
    ----------
    ranker : CandidateRanker
    trust : Trust
    features : TaskFeatures
    task : int
    times : dict
        (solver, config) -> time of what was measured of the task.
    settings : CandidateSettings
    """
    view = features.views[task]
    guess = ranker.guess(view)
    portfolio, best = ranker.portfolio, features.trials.best[task]
    places, keys, slowdown, unrecorded = [], [], [], 0
    wanted: list[str] = []
    valid = features.valid[task]
    number = features.number
    for place, candidate in enumerate(guess.order):
        key = portfolio.solver[candidate], portfolio.config[candidate]
        if key in times:
            places.append(place)
            keys.append(portfolio.key(candidate))
            slowdown.append(times[key] / best)
        elif valid[number[key]]:
            unrecorded += not places
            if len(places) + len(wanted) < settings.judged:
                wanted.append(portfolio.key(candidate))
    if not places:
        return None
    rows = ranker.judge_rows(view, guess, places[: settings.judged])
    is_sure = not trust.why_not(view, kind_of(view))
    return Answer(
        task,
        guess,
        keys,
        slowdown,
        rows,
        unrecorded,
        wanted,
        _replay(ranker, features, task),
        is_sure,
    )


def _replay(ranker: CandidateRanker, features: TaskFeatures, task: int) -> list[float]:
    trials = features.trials
    own = np.flatnonzero((trials.task == task) & trials.measured)
    number = {
        pair: place
        for place, pair in enumerate(
            zip(ranker.portfolio.solver, ranker.portfolio.config, strict=True)
        )
    }
    numbers = np.array(
        [number.get(features.candidates[one], -1) for one in features.candidate[own]]
    )
    said = ranker.losses_of(features.views[task], features.rows[own], numbers)
    order = own[np.argsort(said, kind="stable")[:4]]
    slowdown: list[float] = (trials.time_ms[order] / trials.best[task]).tolist()
    return slowdown


def task_times(trials: CandidateTrials) -> list[dict[tuple[int, str], float]]:
    """List the times of each task by solver and config; infinite for what has none."""
    times: list[dict[tuple[int, str], float]] = [{} for _ in trials.tasks]
    reached = np.where(trials.measured, trials.time_ms, np.inf)
    for task, solver, config, time in zip(
        trials.task.tolist(), trials.solver.tolist(), trials.config, reached.tolist(), strict=True
    ):
        times[task][solver, config] = time
    return times


def fold_of_tasks(trials: CandidateTrials, folds: int) -> npt.NDArray[np.int64]:
    """Fold of each task; the tasks of one shape share it, and folds have equally many shapes."""
    shapes = np.unique(trials.position)
    if len(shapes) < folds:
        raise InputError(f"too few shapes to train on: {len(shapes)}, expected {folds} at least")
    return np.searchsorted(shapes, trials.position).astype(np.int64) % folds


def answers_unseen(
    features: TaskFeatures,
    settings: CandidateSettings,
    workers: int = 1,
    on_progress: Progress | None = None,
) -> list[Answer]:
    """Answer every task by a ranker that was trained without its shape.

    Parameters
    ----------
    features : TaskFeatures
    settings : CandidateSettings
    workers : int, default 1
        Processes. The answers don't depend on it.
    on_progress : callable, optional
        Called with a text, steps done and steps in all.
    """
    tell = on_progress or (lambda _text, _done, _all: None)
    found: list[Answer] = []
    folds = range(settings.folds)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(_answers_of_fold, features, settings, number) for number in folds]
        for number, future in enumerate(waiting):
            tell("candidates, without a part of the shapes", number, settings.folds + 2)
            found += future.result()
    return sorted(found, key=lambda one: one.task)


def _answers_of_fold(
    features: TaskFeatures, settings: CandidateSettings, number: int
) -> list[Answer]:
    fold = fold_of_tasks(features.trials, settings.folds)
    times = task_times(features.trials)
    ranker = train_ranker(features, fold != number, settings)
    trust = learn_trust(features, fold != number, settings)
    told = (
        answer(ranker, trust, features, task, times[task], settings)
        for task in np.flatnonzero(fold == number).tolist()
    )
    return [one for one in told if one is not None]


def train_judge(answers: Iterable[Answer], settings: CandidateSettings) -> Forest:
    """Learn from answers on unseen shapes how probably a candidate is within 1.10 of the best."""
    some = list(answers)
    rows = np.concatenate([one.judge_rows for one in some])
    good = np.concatenate(
        [np.array(one.slowdown[: len(one.judge_rows)]) <= BAD_SLOWDOWN for one in some]
    )
    return Forest.from_lightgbm(
        [train_regression(rows, good.astype(np.float64), settings.judge, "binary")]
    )


def learn_trust(features: TaskFeatures, inside: Flags, settings: CandidateSettings) -> Trust:
    """Collect the kinds, ranges and devices of some tasks."""
    shapes: dict[tuple[int, ...], set[float]] = {}
    boxes: dict[int, list[tuple[float, ...]]] = {}
    for task in np.flatnonzero(inside).tolist():
        view, position = features.views[task], features.trials.position[task]
        kind = kind_of(view)
        shapes.setdefault(kind, set()).add(float(position))
        boxes.setdefault(kind[1], []).append(ranged(view))
    kinds = {kind for kind, seen in shapes.items() if len(seen) >= settings.least_shapes}
    return Trust(
        frozenset(kinds),
        {ndim: tuple(np.min(box, axis=0).tolist()) for ndim, box in boxes.items()},
        {ndim: tuple(np.max(box, axis=0).tolist()) for ndim, box in boxes.items()},
        tuple(dict.fromkeys(features.trials.tasks[task][1] for task in np.flatnonzero(inside))),
    )
