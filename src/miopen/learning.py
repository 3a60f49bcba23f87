"""Records of MIOpen's databases, ready to learn from and to score. Needs the extra `train`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from foretune.errors import InputError
from foretune.kernels.conv.problem import DIRECTIONS, ConvProblem
from foretune.kernels.devices import device_facts
from foretune.miopen.keys import parse_find_key
from foretune.predictor.dataset import RankingData, ranking_data
from foretune.predictor.features.conv import why_unsupported


@dataclass(frozen=True)
class LearningParts:
    """Records by direction, and why others were left out.

    Attributes
    ----------
    parts : dict
        Direction -> records.
    left_out : Counter
        Reason -> problems.
    """

    parts: dict[str, RankingData]
    left_out: Counter[str]


def learning_parts(table: pd.DataFrame) -> LearningParts:
    """Turn a table of `foretune.miopen.dataset.read_table` into matrices.

    Parameters
    ----------
    table : pandas.DataFrame
        Rows of one arch; devices of several compute-unit counts may be together.
    """
    units = sorted(table["compute_units"].unique().tolist())
    (arch,) = table["arch"].unique().tolist()
    devices = tuple(device_facts(arch, count) for count in units)
    starts = np.flatnonzero(table["rank"].to_numpy() == 0)
    ends = np.append(starts[1:], len(table))
    keys = table["problem"].to_numpy()[starts]
    device = np.searchsorted(units, table["compute_units"].to_numpy()[starts])
    solvers, times = table["solver"].tolist(), table["time_ms"].tolist()
    problems: list[ConvProblem | None] = []
    left_out: Counter[str] = Counter()
    parsed: dict[str, ConvProblem | None] = {}
    for key in keys:
        if key not in parsed:
            parsed[key] = _problem(key, left_out)
        problems.append(parsed[key])
    parts = {}
    for direction in DIRECTIONS:
        rows = [i for i, p in enumerate(problems) if p is not None and p.direction == direction]
        parts[direction] = ranking_data(
            [p for i in rows if (p := problems[i]) is not None],
            [
                dict(zip(solvers[starts[i] : ends[i]], times[starts[i] : ends[i]], strict=True))
                for i in rows
            ],
            device[rows],
            devices,
            [keys[i] for i in rows],
        )
    return LearningParts(parts, left_out)


def _problem(key: str, left_out: Counter[str]) -> ConvProblem | None:
    try:
        problem = parse_find_key(key)
    except InputError as error:
        left_out[error.message] += 1
        return None
    reason = why_unsupported(problem)
    if reason:
        left_out[reason] += 1
        return None
    return problem


def restrict(data: RankingData, solvers: frozenset[str]) -> RankingData:
    """Keep what a release can run, and the records that still list something."""
    return data.keep_candidates(np.array([name in solvers for name in data.candidates], bool))


def group_rows(data: RankingData) -> dict[str, npt.NDArray[np.bool_]]:
    """Rows of each group that scores are reported for."""
    is_3d, channels_last = data.raw[:, 0] == 1, data.raw[:, 3] == 1
    return {
        "2-D NCHW": ~is_3d & ~channels_last,
        "2-D NHWC": ~is_3d & channels_last,
        "3-D": is_3d,
        "all": np.ones(len(data), bool),
    }
