"""How sure an answer must be: the judge and its thresholds, from answers on unseen shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.kernels.runtime.properties import DeviceProperties
from foretune.predictor.acceptance import RISKS
from foretune.predictor.calibrate import learn_then_test
from foretune.predictor.default_candidate import default_candidate
from foretune.predictor.evaluate import Outcomes
from foretune.predictor.kernels.dataset import CandidateTrials
from foretune.predictor.kernels.model import ANY
from foretune.predictor.kernels.train import (
    Answer,
    CandidateSettings,
    fold_of_tasks,
    train_judge,
)

CONFIDENCE = 0.9
#: Thresholds that are tried, fixed before any answer is seen.
GRID = np.linspace(0.40, 0.99, 60)


def outcomes_unseen(
    answers: Sequence[Answer], trials: CandidateTrials, settings: CandidateSettings
) -> Outcomes:
    """Give what picks came to, with scores of a judge that was trained without their shapes.

    Parameters
    ----------
    answers : sequence of Answer
        Of rankers that had not seen the tasks.
    trials : CandidateTrials
    settings : CandidateSettings
    """
    fold = fold_of_tasks(trials, settings.folds)
    score = np.zeros(len(answers))
    of_answer = np.array([fold[one.task] for one in answers])
    for number in range(settings.folds):
        asked = np.flatnonzero(of_answer == number)
        taught = [one for one, other in zip(answers, of_answer, strict=True) if other != number]
        if not asked.size or not taught:
            continue
        rows = np.stack([answers[place].judge_rows[0] for place in asked.tolist()])
        odds = train_judge(taught, settings).predict(rows)[:, 0]
        score[asked] = 1 / (1 + np.exp(-odds))
    tasks = np.array([one.task for one in answers])
    best = trials.best[tasks]
    first = np.array([one.slowdown[0] for one in answers])
    return Outcomes(
        best,
        best * first,
        best * np.array([min(one.slowdown[:3]) for one in answers]),
        score,
        np.array([one.is_sure for one in answers], bool),
        np.zeros(len(answers), np.intp),
        trials.position[tasks],
    )


def calibrate(
    outcomes: Outcomes, answers: Sequence[Answer], trials: CandidateTrials
) -> dict[str, Any]:
    """Find thresholds of the judge's score for each device; content of calibration.json."""
    device_of = [trials.tasks[one.task][1] for one in answers]
    entries: dict[int, dict[str, Any]] = {}
    for device in dict.fromkeys(device_of):
        rows = np.array([other == device for other in device_of], bool) & outcomes.sure
        entries[device.compute_units] = _entry(device, outcomes.take(rows))
    return {
        "promise": "P(slower than 1.10 times the best known | accepted) <= risk",
        "confidence": CONFIDENCE,
        "method": (
            "Learn then Test: fixed-sequence testing over a fixed grid of thresholds, exact "
            "binomial p-values, one record drawn for each shape; scores and picks are those of "
            "models trained without the shape"
        ),
        "entries": list(entries.values()),
    }


def against_default(answers: Sequence[Answer], trials: CandidateTrials) -> dict[str, Any]:
    """Compare picks with default candidates where both were measured.

    Returns
    -------
    dict
        ``problems``, and geometric-mean slowdowns of ``pick`` and ``default``.
    """
    times: dict[tuple[int, str], float] = {}
    for task, key, time in zip(trials.task.tolist(), trials.keys(), trials.time_ms, strict=True):
        times[task, key] = float(time)
    both = []
    for one in answers:
        default = times.get((one.task, default_candidate(*trials.tasks[one.task]).key))
        if default is not None and np.isfinite(default):
            both.append((one.slowdown[0], default / trials.best[one.task]))
    pick, default = np.exp(np.log(np.array(both).reshape(-1, 2)).mean(axis=0)) if both else (1, 1)
    return {"problems": len(both), "pick": float(pick), "default": float(default)}


def _entry(device: DeviceProperties, outcomes: Outcomes) -> dict[str, Any]:
    shapes = np.unique(outcomes.shape, return_inverse=True)[1].astype(np.int64)
    return {
        "device": device.name,
        "compute_units": device.compute_units,
        "direction": ANY,
        "runnable": "0",
        "grid": [float(GRID[0]), float(GRID[-1])],
        "thresholds": [
            learn_then_test(
                outcomes.score, outcomes.bad, shapes, GRID, risk, 1 - CONFIDENCE
            ).to_dict()
            for risk in RISKS
        ],
    }


def accepted_at(
    calibration: dict[str, Any], outcomes: Outcomes, risk: float
) -> npt.NDArray[np.bool_]:
    """Which outcomes the thresholds of a single device accept."""
    scores = {
        level["risk"]: level["score"]
        for entry in calibration["entries"]
        for level in entry["thresholds"]
    }
    threshold = scores.get(risk)
    if threshold is None:
        return np.zeros(len(outcomes.best), bool)
    return np.asarray(outcomes.sure & (outcomes.score >= threshold))
