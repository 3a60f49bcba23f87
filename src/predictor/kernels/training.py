"""Trains a candidate model from datasets and writes its bundle. Needs the extra `train`."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from os import cpu_count
from pathlib import Path
from time import monotonic
from typing import Any

import lightgbm
import numpy as np

from foretune.kernels.problem_text import format_problem
from foretune.kernels.store import Store
from foretune.predictor.acceptance import RISKS
from foretune.predictor.bundle import draft_folder, write_json
from foretune.predictor.evaluate import Outcomes
from foretune.predictor.kernels.bundle import save_candidates
from foretune.predictor.kernels.calibrate import (
    accepted_at,
    against_default,
    calibrate,
    outcomes_unseen,
)
from foretune.predictor.kernels.dataset import CandidateTrials, read_trials
from foretune.predictor.kernels.model_card import write_candidate_card
from foretune.predictor.kernels.portfolio import write_portfolio
from foretune.predictor.kernels.train import (
    Answer,
    CandidateSettings,
    Progress,
    TaskFeatures,
    answers_unseen,
    learn_trust,
    train_judge,
    train_ranker,
    train_times,
)
from foretune.predictor.manifest import MANIFEST_FILE, checksums
from foretune.predictor.system_database import TunedRecord, write_system_database

#: What models answered that had not seen the shape, for `foretune compare kernels`.
UNSEEN_FILE = "unseen.json"
PORTFOLIO_FILE = "portfolio.txt"
#: Candidates of an answer that are kept there.
_KEPT = 8


@dataclass(frozen=True)
class CandidateReport:
    """What a training made and how good it is on shapes that it had not seen."""

    folder: str
    arch: str
    operation: str
    seconds: float
    problems: int
    shapes: int
    trials: int
    candidates: int
    metrics: dict[str, Any]
    bundle_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Give the fields for JSON."""
        return dict(self.__dict__)


def train_kernels(
    data: Sequence[str | os.PathLike[str]],
    arch: str,
    out: str | os.PathLike[str],
    *,
    operation: str = "conv",
    store: Store | None = None,
    workers: int = 0,
    settings: CandidateSettings | None = None,
    on_progress: Progress | None = None,
) -> CandidateReport:
    """Train, calibrate and test the model of an operation's candidates on an arch, and write it.

    Parameters
    ----------
    data : sequence of path-like
        Datasets of `foretune tune`.
    arch : str
        Only its trials are learnt.
    out : path-like
        The arch's folder; the bundle goes into one named as the operation below it.
    operation : str, default 'conv'
    store : Store, optional
        A user's database, whose measurements are learnt too.
    workers : int, default 0
        Processes; 0 takes the machine's processors. The bundle doesn't depend on it.
    settings : CandidateSettings, optional
    on_progress : callable, optional
        Called with a text, steps done and steps in all.

    Returns
    -------
    CandidateReport

    Raises
    ------
    InputError
        If the data can't be read or holds too little.
    """
    began = monotonic()
    chosen = settings or CandidateSettings()
    tell = on_progress or (lambda _text, _done, _all: None)
    tell("reading", 0, chosen.folds + 2)
    trials = read_trials(data, operation, arch, store)
    home = Path(out) / operation
    features = TaskFeatures(trials)
    answers = answers_unseen(features, chosen, workers or cpu_count() or 1, tell)
    tell("candidates, on all shapes", chosen.folds, chosen.folds + 2)
    everything = np.ones(len(trials.tasks), bool)
    ranker = replace(
        train_ranker(features, everything, chosen),
        times=train_times(features, chosen),
        judge=train_judge(answers, chosen),
    )
    outcomes = outcomes_unseen(answers, trials, chosen)
    calibration = calibrate(outcomes, answers, trials)
    calibration["unmeasured"] = against_default(answers, trials)
    metrics = measure(outcomes, answers, trials, calibration)
    tell("writing", chosen.folds + 1, chosen.folds + 2)
    with draft_folder(home) as draft:
        save_candidates(draft, ranker, learn_trust(features, everything, chosen), operation)
        portfolio = ranker.portfolio
        write_portfolio(draft / PORTFOLIO_FILE, map(portfolio.key, range(len(portfolio))))
        write_json(draft / "calibration.json", calibration)
        write_json(draft / "metrics.json", metrics)
        write_json(draft / UNSEEN_FILE, unseen_answers(answers, outcomes, trials), indent=None)
        write_system_database(draft, _tuned(trials))
        write_json(
            draft / MANIFEST_FILE, _manifest(draft, data, arch, operation, store, chosen, trials)
        )
        write_candidate_card(draft)
    return CandidateReport(
        str(home),
        arch,
        operation,
        monotonic() - began,
        len(trials.tasks),
        len(np.unique(trials.position)),
        len(trials),
        len(portfolio),
        metrics,
        sum(file.stat().st_size for file in home.iterdir()),
    )


def groups_of(trials: CandidateTrials, tasks: Sequence[int]) -> dict[str, np.ndarray[Any, Any]]:
    """List the groups that scores are given for: all, directions, types, filters."""
    problems = [trials.tasks[task][0] for task in tasks]
    groups = {"all": [True] * len(problems)}
    for direction in ("F", "B", "W"):
        groups[direction] = [problem.direction == direction for problem in problems]
    for dtype in ("FP32", "FP16", "BF16"):
        groups[dtype] = [problem.dtype == dtype for problem in problems]
    groups["depthwise"] = [1 < problem.groups == problem.in_channels for problem in problems]
    groups["3-D"] = [problem.ndim == 3 for problem in problems]
    return {name: np.array(rows, bool) for name, rows in groups.items()}


def measure(
    outcomes: Outcomes,
    answers: Sequence[Answer],
    trials: CandidateTrials,
    calibration: dict[str, Any],
) -> dict[str, Any]:
    """Score answers on unseen shapes."""
    top4 = np.array([min(one.slowdown[:4]) for one in answers])
    best = np.array([min(one.slowdown) for one in answers])
    replayed = np.array([one.replayed[0] for one in answers])
    replayed4 = np.array([min(one.replayed) for one in answers])
    scores = {}
    for name, rows in groups_of(trials, [one.task for one in answers]).items():
        if rows.any():
            scores[name] = {
                **outcomes.take(rows).summary().to_dict(),
                "top4_slowdown": float(np.exp(np.log(top4[rows]).mean())),
                "ranked_slowdown": float(np.exp(np.log(best[rows]).mean())),
                "replayed_slowdown": float(np.exp(np.log(replayed[rows]).mean())),
                "replayed_top4": float(np.exp(np.log(replayed4[rows]).mean())),
            }
    return {
        "how": "each shape answered by a model that was trained without it; the pick is the first "
        "of the ranked candidates that was measured, and the best the fastest that was measured",
        "first_was_measured": float(np.mean([one.unrecorded == 0 for one in answers])),
        "unanswered": len(trials.tasks) - len(answers),
        "scores": scores,
        "accepting": [
            outcomes.delivered(accepted_at(calibration, outcomes, risk), risk).to_dict()
            for risk in RISKS
        ],
    }


def unseen_answers(
    answers: Sequence[Answer], outcomes: Outcomes, trials: CandidateTrials
) -> dict[str, Any]:
    """Tell what was answered, by device and problem."""
    devices: dict[str, dict[str, Any]] = {}
    for one, score, is_sure in zip(
        answers, outcomes.score.tolist(), outcomes.sure.tolist(), strict=True
    ):
        problem, device = trials.tasks[one.task]
        of_device = devices.setdefault(f"{device.name}, {device.compute_units}", {})
        of_device[format_problem(problem)] = {
            "score": round(score, 4),
            "sure": is_sure,
            "candidates": one.keys[:_KEPT],
            "unmeasured": one.wanted,
        }
    return devices


def _tuned(trials: CandidateTrials) -> list[TunedRecord]:
    records = []
    for row in np.flatnonzero(trials.measured).tolist():
        problem, device = trials.tasks[trials.task[row]]
        solver, time = trials.solvers[trials.solver[row]], float(trials.time_ms[row])
        records.append(TunedRecord(problem, device, solver, trials.config[row], time))
    return records


def _manifest(
    draft: Path,
    data: Sequence[str | os.PathLike[str]],
    arch: str,
    operation: str,
    store: Store | None,
    settings: CandidateSettings,
    trials: CandidateTrials,
) -> dict[str, Any]:
    words = " ".join(f"--data {_shown(path)}" for path in data)
    return {
        "family": "kernels",
        "arch": arch,
        "operation": operation,
        "rebuild": f"foretune train kernels {words}{' --user' if store else ''} --arch {arch} "
        f"--out trained_models/kernels/{arch}",
        "files": checksums(draft),
        "datasets": {_shown(path): sha256(Path(path).read_bytes()).hexdigest() for path in data},
        "devices": [
            {"name": device.name, "compute_units": device.compute_units}
            for device in trials.devices
        ],
        "problems": len(trials.tasks),
        "shapes": len(np.unique(trials.position)),
        "trials": len(trials),
        "settings": {
            name: value if isinstance(value, int | float) else dict(value.__dict__)
            for name, value in settings.__dict__.items()
        },
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "lightgbm": lightgbm.__version__,
        },
    }


def _shown(path: str | os.PathLike[str]) -> str:
    """Path as it is given, without the folders of this machine."""
    return Path(path).name if Path(path).is_absolute() else Path(path).as_posix()
