"""What the model says of many records at once, and the check that holds them against it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.devices import DeviceFacts
from foretune.miopen.audit_records import AuditedRecord, AuditSetting, Expected, Suspicion
from foretune.miopen.predictor import (
    BORROWED_MODELS,
    naive_flags,
    runnable_flags,
    shipped_models,
)
from foretune.miopen.solvers import name_in
from foretune.predictor.bundle import RankingBundle
from foretune.predictor.features.conv import (
    ROOFLINE_AT,
    raw_features,
    raw_numbers,
    why_unsupported,
)

#: A record whose best time is more than so many times what the model expects is not believed.
TOO_SLOW = 10.0


def check_expected(records: Sequence[AuditedRecord], _setting: AuditSetting) -> Iterator[Suspicion]:
    """Find records in which nothing comes near what the model expects of its pick."""
    for index, audited in enumerate(records):
        best, expected = audited.best, audited.expected
        if best and expected and expected.sure and best.time_ms > TOO_SLOW * expected.time_ms:
            detail = (
                f"{best.time_ms:g} ms is the best listed, the model expects "
                f"{expected.time_ms:.4g} ms of {expected.solver}"
            )
            yield Suspicion(index, best, "slow", detail)


class BulkModel:
    """Asks an arch's bundle about many problems at once, which is several times faster.

    Parameters
    ----------
    arch : str
    device : DeviceFacts, optional
    miopen : str, default 'any'
        Release whose solvers may be picked.
    models : path-like, optional
        Folder with a bundle for each arch. Default: the bundles that come with foretune.

    Examples
    --------
    >>> from foretune.kernels.devices import device_facts
    >>> model = BulkModel("gfx942", device_facts("gfx942"))
    >>> model.expect([ConvProblem("F", 64, 256, (14, 14), 256, (3, 3), dtype="FP16")])[0].sure
    True
    """

    def __init__(
        self,
        arch: str,
        device: DeviceFacts | None,
        miopen: str = "any",
        models: str | os.PathLike[str] | None = None,
    ) -> None:
        self.arch = arch
        self.device = device
        self.miopen = miopen
        folder = Path(models or shipped_models()) / BORROWED_MODELS.get(arch, arch)
        self._bundle = RankingBundle(folder) if folder.is_dir() else None

    @property
    def has_data(self) -> bool:
        """Whether there is a bundle for the arch, or for one near it."""
        return self._bundle is not None and self.device is not None

    def expect(self, problems: Sequence[ConvProblem]) -> list[Expected | None]:
        """Pick and time for each problem; None where the model has no answer."""
        answers: list[Expected | None] = [None] * len(problems)
        if self._bundle is None:
            return answers
        for direction in self._bundle.directions:
            rows = [
                row
                for row, problem in enumerate(problems)
                if problem.direction == direction and not why_unsupported(problem)
            ]
            found = self._expect(self._bundle, direction, [problems[row] for row in rows])
            for row, answer in zip(rows, found, strict=True):
                answers[row] = answer
        return answers

    def _expect(
        self, bundle: RankingBundle, direction: str, problems: Sequence[ConvProblem]
    ) -> list[Expected | None]:
        if not problems or self.device is None:
            return [None] * len(problems)
        model = bundle.ranking(direction)
        may_run = runnable_flags(model.candidates, self.arch, self.miopen)
        if not may_run.any():
            return [None] * len(problems)
        naive = naive_flags(model.candidates)
        raw = np.array([raw_numbers(problem) for problem in problems], np.float64)
        # Sizes that no device holds come out as infinite, which is outside whatever was learnt.
        with np.errstate(over="ignore"):
            rows = raw_features(raw, direction, self.device)
        admissions = [
            model.admit(numbers, row, may_run, naive)
            for numbers, row in zip(raw.tolist(), rows, strict=True)
        ]
        assessed = model.assess(
            rows,
            np.array([admission.allowed for admission in admissions]),
            np.array([admission.last for admission in admissions]),
        )
        # Times were learnt in milliseconds over the roofline's seconds.
        with np.errstate(over="ignore"):
            times = np.exp(assessed.log_time[:, 0] + np.log(2.0) * rows[:, ROOFLINE_AT])
        return [
            Expected(
                name_in(model.candidates[pick], self.miopen),
                time_ms,
                admission.known and not admission.outside,
            )
            for pick, time_ms, admission in zip(
                assessed.order[:, 0].tolist(), times.tolist(), admissions, strict=True
            )
        ]
