"""What a ranking learns from: problems as numbers, candidates' times as a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.devices import DeviceFacts
from foretune.predictor.features.conv import FEATURE_NAMES, RAW_NAMES, raw_features, raw_numbers
from foretune.predictor.split import shape_position

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RankingData:
    """Records of one direction on one or more devices.

    Attributes
    ----------
    direction : str
    candidates : tuple of str
        Solvers (or configs), the columns of `times`.
    devices : tuple of DeviceFacts
    raw : array of shape (records, raw numbers)
        Problems in the order of `RAW_NAMES`.
    times : array of shape (records, candidates)
        Infinite where no time is recorded.
    device : array of shape (records,)
        Index into `devices`.
    position : array of shape (records,)
        Place of the record's shape in the split, in [0, 1); records of one shape share it.
    names : array of shape (records,)
        What the records are called, for people.
    """

    direction: str
    candidates: tuple[str, ...]
    devices: tuple[DeviceFacts, ...]
    raw: Floats
    times: Floats
    device: npt.NDArray[np.int64]
    position: Floats
    names: npt.NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.raw)

    def features(self) -> npt.NDArray[np.float32]:
        """Feature matrix, shape (records, features)."""
        out = np.empty((len(self), len(FEATURE_NAMES)), np.float32)
        for index, facts in enumerate(self.devices):
            rows = self.device == index
            out[rows] = raw_features(self.raw[rows], self.direction, facts)
        return out

    def take(self, rows: Any) -> RankingData:
        """Keep some records, by index or flag."""
        return replace(
            self,
            raw=self.raw[rows],
            times=self.times[rows],
            device=self.device[rows],
            position=self.position[rows],
            names=self.names[rows],
        )

    def keep_candidates(self, keep: npt.NDArray[np.bool_]) -> RankingData:
        """Keep some candidates, and the records that still list one."""
        times = self.times[:, keep]
        names = tuple(name for name, kept in zip(self.candidates, keep, strict=True) if kept)
        return replace(self, candidates=names, times=times).take(np.isfinite(times).any(axis=1))

    @property
    def best(self) -> Floats:
        """Best time of each record."""
        return np.asarray(self.times.min(axis=1))


def ranking_data(
    problems: Sequence[ConvProblem],
    times: Sequence[dict[str, float]],
    device: npt.NDArray[np.int64],
    devices: tuple[DeviceFacts, ...],
    names: Sequence[str],
) -> RankingData:
    """Collect records of one direction.

    Parameters
    ----------
    problems : sequence of ConvProblem
        All of one direction.
    times : sequence of dict
        Candidate -> time of each record.
    device : array of shape (records,)
        Index into `devices`.
    devices : tuple of DeviceFacts
    names : sequence of str
        What the records are called.
    """
    candidates = tuple(sorted({name for record in times for name in record}))
    column = {name: i for i, name in enumerate(candidates)}
    matrix = np.full((len(problems), len(candidates)), np.inf)
    for row, record in enumerate(times):
        for name, time in record.items():
            matrix[row, column[name]] = time
    raw = np.array([raw_numbers(problem) for problem in problems], np.float64)
    return RankingData(
        problems[0].direction if problems else "",
        candidates,
        devices,
        raw.reshape(-1, len(RAW_NAMES)),
        matrix,
        device,
        np.array([shape_position(problem) for problem in problems]),
        np.array(names),
    )
