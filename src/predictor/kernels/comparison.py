"""Scores the model of foretune's own kernels, and simple pickers, on a dataset of tuning runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.errors import InputError
from foretune.kernels.problem_text import format_problem
from foretune.predictor.acceptance import RISKS, check_risk
from foretune.predictor.compare import Score, score_picks
from foretune.predictor.evaluate import Outcomes
from foretune.predictor.kernels.baselines import PICKERS
from foretune.predictor.kernels.bundle import load_candidates
from foretune.predictor.kernels.dataset import CandidateTrials, read_trials
from foretune.predictor.kernels.model import KernelModel, kind_of
from foretune.predictor.kernels.models import shipped_candidates
from foretune.predictor.kernels.train import fold_of_tasks, task_times
from foretune.predictor.kernels.training import UNSEEN_FILE, groups_of

Floats = npt.NDArray[np.float64]
Progress = Callable[[str, int, int], None]
Table = tuple[str, list[str], list[list[str]]]

_WORST = 10
_FOLDS = 8


@dataclass(frozen=True)
class Picks:
    """What a picker chose; arrays of shape (problems,).

    Attributes
    ----------
    candidate : tuple of str
        First choice that was measured, "" if none was.
    picked, top3, top4 : array
        Time of the pick, and the best of the first three and four choices that were measured;
        infinite without one.
    """

    candidate: tuple[str, ...]
    picked: Floats
    top3: Floats
    top4: Floats


@dataclass(frozen=True)
class KernelComparison:
    """How pickers did on a dataset.

    Attributes
    ----------
    data : tuple of str
    arch : str
    devices : tuple of str
    risk : float
    problems : tuple of str
        Canonical texts.
    best : array of shape (problems,)
        Best time measured.
    best_candidate : tuple of str
    unseen : array of bool, shape (problems,)
        Answered by models that hadn't seen the problem's shape.
    picks : dict
        Picker -> what it chose.
    scores, top4 : dict
        Group of problems -> picker -> scores, and geometric-mean slowdown of the best of the first
        four choices.
    accepting : list of dict
        foretune at each risk.
    accepted : array of bool, shape (problems,)
        At `risk`.
    reasons : tuple of str
        Why a pick is not accepted, or why it is.
    worst : list of dict
        foretune's worst picks.
    trials : CandidateTrials
        What was measured.
    groups : dict
        Group -> its problems, as flags.
    accepted_at : dict
        Stated risk -> accepted problems, as flags.
    ranked : tuple of tuple of str
        foretune's choices for each problem, the best first.
    score : array of shape (problems,)
        Probability of being good that foretune gave its first choice.
    sure : array of bool, shape (problems,)
        Whether the first choice may be accepted at some score.
    """

    data: tuple[str, ...]
    arch: str
    devices: tuple[str, ...]
    risk: float
    problems: tuple[str, ...]
    best: Floats
    best_candidate: tuple[str, ...]
    unseen: npt.NDArray[np.bool_]
    picks: dict[str, Picks]
    scores: dict[str, dict[str, Score]]
    top4: dict[str, dict[str, float]]
    accepting: list[dict[str, Any]]
    accepted: npt.NDArray[np.bool_]
    reasons: tuple[str, ...]
    worst: list[dict[str, Any]]
    trials: CandidateTrials
    groups: dict[str, npt.NDArray[np.bool_]]
    accepted_at: dict[float, npt.NDArray[np.bool_]]
    ranked: tuple[tuple[str, ...], ...]
    score: Floats
    sure: npt.NDArray[np.bool_]

    def to_dict(self) -> dict[str, Any]:
        """Give the report for JSON."""
        return {
            "data": list(self.data),
            "arch": self.arch,
            "devices": list(self.devices),
            "risk": self.risk,
            "problems": len(self.problems),
            "unseen": int(self.unseen.sum()),
            "scores": {
                group: {
                    picker: {**score.to_dict(), "top4_slowdown": self.top4[group][picker]}
                    for picker, score in pickers.items()
                }
                for group, pickers in self.scores.items()
            },
            "accepting": self.accepting,
            "worst": self.worst,
        }

    def tables(self) -> Iterable[Table]:
        """Give the report as titled tables: title, headers and rows."""
        headers = (
            "picker,problems,top-1,within 2%,not listed,slowdown,mean eff.,P10 eff.,P1 eff.,"
            ">1.1x,>2x,top-3 measured,top-4 measured"
        ).split(",")
        for group, pickers in self.scores.items():
            rows = [
                [name, *_cells(score, self.top4[group][name])] for name, score in pickers.items()
            ]
            yield group, headers, rows
        yield (
            "foretune, accepting (all problems); achieved risk by shape, as promised, and by "
            "record",
            ["stated risk", "coverage", "by shape", "by record", "measured", "slowdown delivered"],
            [
                [
                    f"{row['stated_risk']:.0%}",
                    f"{row['coverage']:.1%}",
                    f"{row['risk_by_shape']:.1%}",
                    f"{row['risk']:.1%}",
                    f"{row['measured']:.1%}",
                    f"{row['slowdown']:.4f}",
                ]
                for row in self.accepting
            ],
        )
        yield (
            "foretune's worst picks",
            ["problem", "pick", "best", "slowdown", f"accepted at {self.risk:g}"],
            [
                [
                    row["problem"],
                    row["pick"],
                    row["best"],
                    f"{row['slowdown']:.2f}",
                    "yes" if row["accepted"] else "no",
                ]
                for row in self.worst
            ],
        )


def _cells(score: Score, top4: float) -> list[str]:
    shares = "{:.1%}".format
    return [
        f"{score.problems}",
        shares(score.top1),
        shares(score.top1_within_2pct),
        shares(score.not_listed),
        f"{score.slowdown:.4f}",
        f"{score.mean_efficiency:.3f}",
        f"{score.p10_efficiency:.3f}",
        f"{score.p1_efficiency:.3f}",
        shares(score.above_1_1x),
        f"{score.above_2x:.2%}",
        "" if score.top3_slowdown is None else f"{score.top3_slowdown:.4f}",
        f"{top4:.4f}",
    ]


def compare_kernels(
    data: Sequence[str | os.PathLike[str]],
    arch: str,
    *,
    operation: str = "conv",
    risk: float = 0.05,
    models: str | os.PathLike[str] | None = None,
    on_progress: Progress | None = None,
) -> KernelComparison:
    """Score pickers on what was tuned.

    A problem that the model was trained on is answered by one that was trained without its shape:
    those answers are part of the bundle. Simple pickers learn from the other shapes of the data.

    Parameters
    ----------
    data : sequence of path-like
        Datasets of `foretune tune`.
    arch : str
    operation : str, default 'conv'
    risk : float, default 0.05
        For what is said of single picks.
    models : path-like, optional
        Folder of models, a folder for each arch. Default: those that come with foretune.
    on_progress : callable, optional
        Called with a text, steps done and steps in all.
    """
    risk = check_risk(risk)
    tell = on_progress or (lambda _text, _done, _all: None)
    home = Path(models or shipped_candidates()) / arch / operation
    model = load_candidates(home, operation)
    tell("reading", 0, 3)
    trials = read_trials(data, operation, arch)
    times = [
        {_key(trials, solver, config): time for (solver, config), time in of_task.items()}
        for of_task in task_times(trials)
    ]
    tell("asking foretune", 1, 3)
    asked = _Asked(model, _unseen(home), trials)
    chosen = {"foretune": [asked.choices(task) for task in range(len(trials.tasks))]}
    tell("asking the others", 2, 3)
    chosen |= _ask_pickers(trials)
    picks = {name: _picks(choices, times) for name, choices in chosen.items()}
    best = trials.best
    groups = groups_of(trials, range(len(trials.tasks)))
    scores, top4 = _scores(picks, best, groups)
    verdicts = {level: asked.verdicts(level) for level in sorted({*RISKS, risk})}
    outcomes = _outcomes(picks["foretune"], trials)
    accepted = {
        level: np.array([one for one, _ in of_level], bool) for level, of_level in verdicts.items()
    }
    problems = tuple(format_problem(problem) for problem, _ in trials.tasks)
    fastest = tuple(min(of_task, key=of_task.__getitem__) for of_task in times)
    return KernelComparison(
        tuple(map(str, data)),
        arch,
        tuple(device.name for device in trials.devices),
        risk,
        problems,
        best,
        fastest,
        np.array(asked.is_unseen, bool),
        picks,
        scores,
        top4,
        [outcomes.delivered(accepted[level], level).to_dict() for level in accepted],
        accepted[risk],
        tuple(reason for _, reason in verdicts[risk]),
        _worst(problems, picks["foretune"], best, fastest, accepted[risk]),
        trials,
        groups,
        accepted,
        tuple(map(tuple, chosen["foretune"])),
        np.array([asked.score(task) for task in range(len(trials.tasks))]),
        np.array([asked.is_sure(task) for task in range(len(trials.tasks))], bool),
    )


def _key(trials: CandidateTrials, solver: int, config: str) -> str:
    name = trials.solvers[solver]
    return f"{name}{{{config}}}" if config else name


def _unseen(home: Path) -> dict[str, dict[str, Any]]:
    path = home / UNSEEN_FILE
    try:
        content: dict[str, dict[str, Any]] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"can't be read: {error}", str(path)) from None
    return content


class _Asked:
    """foretune's answers, of models that hadn't seen the shape where it was learnt."""

    def __init__(
        self, model: KernelModel, unseen: dict[str, dict[str, Any]], trials: CandidateTrials
    ) -> None:
        self._model = model
        self._trials = trials
        self._told = [
            unseen.get(f"{device.name}, {device.compute_units}", {}).get(format_problem(problem))
            for problem, device in trials.tasks
        ]
        learnt = {(device.name, device.compute_units) for device in model.devices}
        self.is_unseen = [
            told is not None or (device.name, device.compute_units) not in learnt
            for told, (_, device) in zip(self._told, trials.tasks, strict=True)
        ]

    def choices(self, task: int) -> list[str]:
        told = self._told[task]
        if told is not None:
            return list(told["candidates"])
        ranking = self._model.rank(*self._trials.tasks[task])
        return [one.key for one in ranking.candidates]

    def score(self, task: int) -> float:
        told = self._told[task]
        if told is not None:
            return float(told["score"])
        ranking = self._model.rank(*self._trials.tasks[task], top=1)
        return ranking.candidates[0].score if ranking.candidates else 0.0

    def is_sure(self, task: int) -> bool:
        told = self._told[task]
        if told is not None:
            return bool(told["sure"])
        view = self._model.ranker.view(*self._trials.tasks[task])
        return not self._model.trust.why_not(view, kind_of(view))

    def verdicts(self, risk: float) -> list[tuple[bool, str]]:
        return [self._verdict(task, risk) for task in range(len(self._told))]

    def _verdict(self, task: int, risk: float) -> tuple[bool, str]:
        problem, device = self._trials.tasks[task]
        told = self._told[task]
        if told is None:
            ranking = self._model.rank(problem, device, risk=risk, top=1)
            return ranking.accepted, ranking.reason
        if not told["sure"]:
            return False, "unlike what the model for this shape had learnt"
        return self._model.judge(device, risk, told["score"])


def _ask_pickers(trials: CandidateTrials) -> dict[str, list[list[str]]]:
    shapes = len(np.unique(trials.position))
    fold = fold_of_tasks(trials, min(_FOLDS, shapes))
    chosen: dict[str, list[list[str]]] = {name: [[] for _ in trials.tasks] for name in PICKERS}
    for number in np.unique(fold).tolist():
        taught = np.flatnonzero(fold != number)
        for name, make in PICKERS.items():
            picker = make()
            if taught.size:
                picker.fit(trials, taught)
                for task in np.flatnonzero(fold == number).tolist():
                    chosen[name][task] = list(picker.choices(trials, task))
    return chosen


def _picks(choices: Sequence[Sequence[str]], times: Sequence[dict[str, float]]) -> Picks:
    candidates, reached = [], np.full((len(times), 4), np.inf)
    for task, (keys, of_task) in enumerate(zip(choices, times, strict=True)):
        measured = [key for key in dict.fromkeys(keys) if key in of_task][:4]
        candidates.append(measured[0] if measured else "")
        for place, key in enumerate(measured):
            reached[task, place] = of_task[key]
    return Picks(tuple(candidates), reached[:, 0], reached[:, :3].min(axis=1), reached.min(axis=1))


def _scores(
    picks: dict[str, Picks], best: Floats, groups: dict[str, npt.NDArray[np.bool_]]
) -> tuple[dict[str, dict[str, Score]], dict[str, dict[str, float]]]:
    scores: dict[str, dict[str, Score]] = {}
    top4: dict[str, dict[str, float]] = {}
    for group, rows in groups.items():
        if not rows.any():
            continue
        scores[group], top4[group] = {}, {}
        for name, one in picks.items():
            scores[group][name] = score_picks(best[rows], one.picked[rows], one.top3[rows])
            reached = (one.top4 / best)[rows]
            top4[group][name] = float(np.exp(np.log(reached[np.isfinite(reached)]).mean()))
    return scores, top4


def _outcomes(picks: Picks, trials: CandidateTrials) -> Outcomes:
    count = len(trials.tasks)
    return Outcomes(
        trials.best,
        picks.picked,
        picks.top4,
        np.ones(count),
        np.ones(count, bool),
        np.zeros(count, np.intp),
        trials.position,
    )


def _worst(
    problems: Sequence[str],
    picks: Picks,
    best: Floats,
    fastest: Sequence[str],
    accepted: npt.NDArray[np.bool_],
) -> list[dict[str, Any]]:
    slowdown = np.where(np.isfinite(picks.picked), picks.picked / best, 0.0)
    return [
        {
            "problem": problems[task],
            "pick": picks.candidate[task],
            "best": fastest[task],
            "slowdown": float(slowdown[task]),
            "accepted": bool(accepted[task]),
        }
        for task in np.argsort(-slowdown, kind="stable")[:_WORST].tolist()
    ]
