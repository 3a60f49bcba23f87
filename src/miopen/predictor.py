"""Answers which MIOpen solver and tuning parameters win, from a trained bundle."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from math import exp
from operator import index
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from foretune.errors import InputError
from foretune.kernels.devices import DeviceFacts, device_facts
from foretune.miopen.names import parse_arch, usual_compute_units
from foretune.miopen.solvers import SOLVERS, can_run, name_in
from foretune.miopen.workspace import workspace_bytes
from foretune.predictor.acceptance import Acceptance, check_risk, to_bits
from foretune.predictor.bundle import RankingBundle
from foretune.predictor.features.conv import (
    ROOFLINE_AT,
    features_of_raw,
    raw_features,
    raw_numbers,
    why_unsupported,
)
from foretune.predictor.prediction import Prediction, Solution
from foretune.predictor.ranking import JUDGED, Admission, Ranked, RankingModel

if TYPE_CHECKING:
    import os

    import numpy.typing as npt

    from foretune.kernels.conv.problem import ConvProblem
    from foretune.miopen.config_ranking import ConfigRanking

DEFAULT_RISK = 0.05
#: An arch that AMD ships no database for -> the nearest one that has a model. Never accepted.
BORROWED_MODELS = MappingProxyType({"gfx950": "gfx942"})
_REMEMBERED = 100_000
# Problems that are answered together: enough for numpy, few enough for the cache.
_BATCH = 1024
_FEWEST_TOGETHER = 16


class MIOpenPredictor:
    """Predicts for one device and release.

    Parameters
    ----------
    arch : str
        "gfx942", or as a device reports it: "gfx90a:sramecc+:xnack-".
    compute_units : int, optional
        Default: the arch's usual count.
    risk : float, default 0.05
        Share of accepted answers that may turn out slower than 1.10 times the best, or no
        solver of the problem at all.
    miopen : str, default 'any'
        Release whose solvers may be picked, such as "3.6"; "any" takes every solver that the
        databases know.
    models : path-like, optional
        Folder with a bundle for each arch. Default: the bundles that come with foretune.

    Raises
    ------
    InputError
        If an argument can't be understood, or there is no folder ``models``. An arch without a
        model is no error: it gets answers without solutions, never accepted.

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> predictor = MIOpenPredictor("gfx942")
    >>> problem = ConvProblem("F", 64, 256, (14, 14), 256, (3, 3), padding=(1, 1), dtype="FP16")
    >>> predictor.predict(problem).solutions[0].solver.startswith("Conv")
    True
    """

    def __init__(
        self,
        arch: str,
        compute_units: int | None = None,
        *,
        risk: float = DEFAULT_RISK,
        miopen: str = "any",
        models: str | os.PathLike[str] | None = None,
    ) -> None:
        self.risk = check_risk(risk)
        for name, text in (("arch", arch), ("MIOpen version", miopen)):
            if not isinstance(text, str):
                raise InputError(f"expected text, got {text!r}", name)
        self.arch = parse_arch(arch)
        self.compute_units = (
            usual_compute_units(self.arch) if compute_units is None else _units(compute_units)
        )
        self.miopen = miopen
        can_run("", self.arch, miopen)
        self._model_arch = BORROWED_MODELS.get(self.arch, self.arch)
        self._models = models
        self._folder = shipped_models() if models is None else _models_folder(models)
        self._answers: dict[tuple[ConvProblem, int], Prediction] = {}
        self._views: dict[str, _DirectionView] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Take what was asked for to another process, which loads the model itself."""
        remake = partial(MIOpenPredictor, risk=self.risk, miopen=self.miopen, models=self._models)
        return remake, (self.arch, self.compute_units)

    def predict(self, problem: ConvProblem, top: int = JUDGED) -> Prediction:
        """Answer one problem; asked again, the same answer comes from memory.

        Parameters
        ----------
        problem : ConvProblem
        top : int, default 4
            Solutions to give at most.
        """
        key = (problem, top)
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            answer = self._answers[key] = self._predict(problem, top)
        return answer

    def predict_many(self, problems: Iterable[ConvProblem], top: int = JUDGED) -> list[Prediction]:
        """Answer many problems, in order; new ones together, which is several times as quick."""
        problems = list(problems)
        answers: list[Prediction] = []
        for start in range(0, len(problems), _BATCH):
            some = problems[start : start + _BATCH]
            new = [p for p in dict.fromkeys(some) if (p, top) not in self._answers]
            if len(new) >= _FEWEST_TOGETHER:
                if len(self._answers) + len(new) > _REMEMBERED:
                    self._answers.clear()
                self._predict_together(new, top)
            answers += [self.predict(problem, top) for problem in some]
        return answers

    def _predict_together(self, problems: list[ConvProblem], top: int) -> None:
        """Remember answers to those of the problems that have a model."""
        of_direction: dict[str, list[ConvProblem]] = {}
        for problem in problems:
            if not self._why_not(problem):
                of_direction.setdefault(problem.direction, []).append(problem)
        for direction, some in of_direction.items():
            view = self._view(direction)
            model = view.model
            raws = [raw_numbers(problem) for problem in some]
            rows = raw_features(np.array(raws), direction, self._device)
            admissions = [
                model.admit(raw, row, view.may_run, view.naive)
                for raw, row in zip(raws, rows, strict=True)
            ]
            many = model.assess(
                rows,
                np.stack([admission.allowed for admission in admissions]),
                np.stack([admission.last for admission in admissions]),
            )
            for i, (problem, admission) in enumerate(zip(some, admissions, strict=True)):
                could_run = admission.allowed | admission.last
                ranked = [
                    Ranked(*answer)
                    for answer in zip(
                        many.order[i].tolist(),
                        many.good[i].tolist(),
                        many.log_time[i].tolist(),
                        strict=True,
                    )
                    if could_run[answer[0]]
                ]
                self._answers[problem, top] = self._answer(
                    problem, top, view, rows[i], admission, ranked
                )

    def _why_not(self, problem: ConvProblem) -> str:
        if self._bundle is None:
            return f"no model for arch {self.arch}"
        why = why_unsupported(problem)
        if why:
            return why
        if problem.direction not in self._bundle.directions:
            return f"no model for direction {problem.direction}"
        if not self._view(problem.direction).bits:
            return f"MIOpen {self.miopen} runs none of the known solvers"
        return ""

    def _predict(self, problem: ConvProblem, top: int) -> Prediction:
        why = self._why_not(problem)
        if why:
            return self._refuse(problem, why)
        view = self._view(problem.direction)
        raw = raw_numbers(problem)
        row = features_of_raw(raw, problem.direction, self._device)
        admission = view.model.admit(raw, row, view.may_run, view.naive)
        ranked = view.model.assess_one(row, admission)
        return self._answer(problem, top, view, row, admission, ranked)

    def _answer(
        self,
        problem: ConvProblem,
        top: int,
        view: _DirectionView,
        row: npt.NDArray[np.float32],
        admission: Admission,
        ranked: list[Ranked],
    ) -> Prediction:
        model = view.model
        accepted, reason = self._acceptance.judge(
            self.compute_units, problem.direction, view.bits, self.risk, ranked[0].good
        )
        if self._model_arch != self.arch:
            accepted, reason = False, f"no data for {self.arch}; {self._model_arch}'s model answers"
        elif not admission.known:
            accepted, reason = False, "no data for problems of this kind"
        elif admission.outside:
            accepted, reason = False, admission.outside
        # Times were learnt in milliseconds over the roofline's seconds.
        unit = 2.0 ** float(row[ROOFLINE_AT])
        solutions = [
            Solution(
                view.names[answer.candidate],
                exp(answer.log_time) * unit,
                workspace_bytes(model.candidates[answer.candidate], problem, self._model_arch),
                answer.good,
                partial(self._config, model.candidates[answer.candidate], problem, row),
            )
            for answer in ranked[:top]
        ]
        return Prediction(
            problem, self.arch, self.compute_units, accepted, self.risk, reason, tuple(solutions)
        )

    def _config(
        self, solver: str, problem: ConvProblem, row: npt.NDArray[np.float32]
    ) -> str | None:
        return self._configs.best(solver, problem, row) if self._configs else None

    def _refuse(self, problem: ConvProblem, why: str) -> Prediction:
        return Prediction(problem, self.arch, self.compute_units, False, self.risk, why, ())

    def _view(self, direction: str) -> _DirectionView:
        view = self._views.get(direction)
        if view is None:
            bundle = self._bundle
            if bundle is None:
                raise AssertionError("asked without a bundle")
            model = bundle.ranking(direction)
            may_run = runnable_flags(model.candidates, self.arch, self.miopen)
            view = self._views[direction] = _DirectionView(
                model,
                may_run,
                naive_flags(model.candidates),
                to_bits(may_run),
                [name_in(name, self.miopen) for name in model.candidates],
            )
        return view

    @cached_property
    def _bundle(self) -> RankingBundle | None:
        folder = self._folder / self._model_arch
        return RankingBundle(folder) if folder.is_dir() else None

    @cached_property
    def _acceptance(self) -> Acceptance:
        if self._bundle is None:
            raise AssertionError("asked without a bundle")
        return Acceptance(self._bundle.calibration, str(self._bundle.folder / "calibration.json"))

    @cached_property
    def _configs(self) -> ConfigRanking | None:
        # Its import takes a millisecond, and `--top 1` or a caller may never look at a config.
        from foretune.miopen.config_ranking import ConfigRanking

        folder = self._folder / self._model_arch
        return ConfigRanking(folder) if (folder / "configs.json").exists() else None

    @cached_property
    def _device(self) -> DeviceFacts:
        return device_facts(self.arch, self.compute_units)


@dataclass(frozen=True)
class _DirectionView:
    """A direction's model as one release sees it."""

    model: RankingModel
    may_run: npt.NDArray[np.bool_]
    naive: npt.NDArray[np.bool_]
    bits: int
    names: list[str]


def runnable_flags(
    candidates: Iterable[str], arch: str, miopen: str = "any"
) -> npt.NDArray[np.bool_]:
    """Which candidates a release runs on an arch."""
    return np.array([can_run(name, arch, miopen) for name in candidates], bool)


def naive_flags(candidates: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Which candidates are naive solvers."""
    return np.array([name in SOLVERS and SOLVERS[name].naive for name in candidates], bool)


def _units(count: SupportsIndex) -> int:
    try:
        whole = 0 if isinstance(count, bool) else index(count)
    except TypeError:
        whole = 0
    if not 1 <= whole <= 4095:
        raise InputError(f"expected 1 to 4095, got {count!r}", "compute units")
    return whole


def _models_folder(models: str | os.PathLike[str]) -> Path:
    try:
        folder = Path(models)
    except TypeError:
        raise InputError(f"expected a folder, got {models!r}", "models") from None
    if not folder.is_dir():
        raise InputError("there is no such folder of models", str(folder))
    if (folder / "feature_spec.json").exists():
        raise InputError(
            "this is the model of one arch; name the folder that it is in", str(folder)
        )
    return folder


def shipped_models() -> Path:
    """Folder of the bundles that come with foretune."""
    from foretune import trained_models

    return Path(trained_models.__path__[0], "miopen")
