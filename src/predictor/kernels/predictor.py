"""Answers from candidate models, for devices that needn't be here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from foretune.errors import InputError
from foretune.kernels.registry import solver
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.space import Config
from foretune.predictor.acceptance import check_risk
from foretune.predictor.candidates import DEFAULT_RISK
from foretune.predictor.kernels.features import parse_config
from foretune.predictor.kernels.models import model_in, shipped_candidates, user_models
from foretune.predictor.prediction import Prediction, Solution

if TYPE_CHECKING:
    import os

    from foretune.kernels.conv.problem import ConvProblem
    from foretune.predictor.candidates import RankedCandidate
    from foretune.predictor.kernels.model import KernelModel

_OPERATION = "conv"
_TOP = 4
#: Answers that are remembered.
_REMEMBERED = 4096


class KernelPredictor:
    """Predicts which of foretune's own kernels win on a device.

    Parameters
    ----------
    arch : str
        "sm_90", "cpu", ... One without a model gets answers without solutions, never accepted.
    compute_units : int, optional
        Default: those of the device that was learnt. Others are answered, not accepted.
    risk : float, default 0.05
    models : path-like, optional
        Folder with a folder for each arch. Default: the user's models, then foretune's.

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> problem = ConvProblem("F", 8, 64, (28, 28), 64, (3, 3), padding=(1, 1))
    >>> KernelPredictor("sm_90").predict(problem, top=2).solutions[0].solver[:4]
    'Conv'
    """

    def __init__(
        self,
        arch: str,
        compute_units: int | None = None,
        *,
        risk: float = DEFAULT_RISK,
        models: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(arch, str):
            raise InputError(f"expected text, got {arch!r}", "arch")
        self.risk = check_risk(risk)
        self.arch = arch.partition(":")[0]
        folders = (user_models(), shipped_candidates()) if models is None else (models,)
        self._model = model_in(folders, self.arch, _OPERATION)
        self._device = None if self._model is None else _device(self._model, compute_units)
        self.compute_units = self._device.compute_units if self._device else compute_units
        self._answers: dict[tuple[ConvProblem, int], Prediction] = {}

    def predict(self, problem: ConvProblem, top: int = _TOP) -> Prediction:
        """Answer one problem; asked again, the same answer comes from memory."""
        answer = self._answers.get((problem, top))
        if answer is None:
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            answer = self._answers[problem, top] = self._predict(problem, top)
        return answer

    def predict_many(self, problems: Iterable[ConvProblem], top: int = _TOP) -> list[Prediction]:
        """Answer many problems, in order."""
        return [self.predict(problem, top) for problem in problems]

    def _predict(self, problem: ConvProblem, top: int) -> Prediction:
        if self._model is None or self._device is None:
            reason = f"no model of foretune's kernels for arch {self.arch}"
            return Prediction(problem, self.arch, self.compute_units, False, self.risk, reason, ())
        ranking = self._model.rank(problem, self._device, risk=self.risk, top=top)
        return Prediction(
            problem,
            self.arch,
            self.compute_units,
            ranking.accepted,
            self.risk,
            ranking.reason,
            tuple(_solution(problem, one) for one in ranking.candidates),
        )


def _device(model: KernelModel, compute_units: int | None) -> DeviceProperties:
    """Give the device that was learnt with so many units, or one that is like it."""
    devices = model.devices
    if compute_units is None:
        return devices[0]
    if not isinstance(compute_units, int) or not 1 <= compute_units <= 4095:
        raise InputError(f"expected 1 to 4095, got {compute_units!r}", "compute units")
    exact = [device for device in devices if device.compute_units == compute_units]
    return exact[0] if exact else replace(devices[0], compute_units=compute_units)


def _solution(problem: ConvProblem, ranked: RankedCandidate) -> Solution:
    known = solver(problem.operation, ranked.solver)
    workspace = known.workspace_size(problem, Config(parse_config(ranked.config)))
    return Solution(
        ranked.solver, ranked.predicted_ms, workspace, ranked.score, lambda: ranked.config
    )
