"""What a candidate model learns from: trials of `foretune tune`, read from Parquet."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from foretune.errors import InputError
from foretune.kernels.problem import Problem
from foretune.kernels.problem_text import format_problem, parse_problem
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.store import Store
from foretune.predictor.split import shape_position

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

MEASURED, TOO_SLOW = "measured", "too slow"
_NOT_TRIED = "not applicable"
_WORDS = ("problem", "solver", "config", "status")
_DEVICE_FIELDS = tuple(field.name for field in fields(DeviceProperties))
_OF_SOLUTION = ("solver", "config", "time_ms", "low_ms", "high_ms", "samples")
#: What a trial must say; the rest of a device may be left out.
_NEEDED = (*_WORDS, "operation", "time_ms", "low_ms", "high_ms", "samples", "arch", "name")


@dataclass(frozen=True)
class CandidateTrials:
    """CandidateTrials of candidates for problems on devices.

    A task is a problem on a device. Arrays have one entry a trial.

    Attributes
    ----------
    tasks : tuple of (Problem, DeviceProperties)
    solvers : tuple of str
        Ids, sorted.
    task, solver : array of int
        Places in them.
    config : tuple of str
        Text forms.
    time_ms : array
        Infinite for what failed; what "too slow" takes at least.
    is_bound : array of bool
        Whether it takes at least this time ("too slow").
    spread : array
        Half of the distance between the quartiles over the median; NaN where it is unknown.
    samples : array of int
        Behind the median.
    """

    tasks: tuple[tuple[Any, DeviceProperties], ...]
    solvers: tuple[str, ...]
    task: Numbers
    solver: Numbers
    config: tuple[str, ...]
    time_ms: Floats
    is_bound: npt.NDArray[np.bool_]
    spread: Floats
    samples: Numbers

    def __len__(self) -> int:
        return len(self.task)

    @property
    def measured(self) -> npt.NDArray[np.bool_]:
        """CandidateTrials with a time of their own."""
        return np.isfinite(self.time_ms) & ~self.is_bound

    @cached_property
    def best(self) -> Floats:
        """Best time of each task."""
        best = np.full(len(self.tasks), np.inf)
        rows = self.measured
        np.minimum.at(best, self.task[rows], self.time_ms[rows])
        return best

    @cached_property
    def position(self) -> Floats:
        """Place of each task's shape in the split; equal for the tasks of one shape."""
        return np.array([shape_position(problem) for problem, _ in self.tasks])

    @property
    def devices(self) -> tuple[DeviceProperties, ...]:
        """Devices, in the order in which they appear."""
        return tuple(dict.fromkeys(device for _, device in self.tasks))

    def keys(self) -> list[str]:
        """Text form of each trial's candidate, as `foretune.kernels.solver.Candidate.key`."""
        names = (self.solvers[place] for place in self.solver)
        return [
            f"{name}{{{config}}}" if config else name
            for name, config in zip(names, self.config, strict=True)
        ]

    def of_tasks(self, keep: npt.NDArray[np.bool_]) -> CandidateTrials:
        """Keep some tasks, by flag."""
        place = np.cumsum(keep) - 1
        rows = keep[self.task]
        return CandidateTrials(
            tuple(task for task, kept in zip(self.tasks, keep, strict=True) if kept),
            self.solvers,
            place[self.task[rows]],
            self.solver[rows],
            tuple(config for config, kept in zip(self.config, rows, strict=True) if kept),
            self.time_ms[rows],
            self.is_bound[rows],
            self.spread[rows],
            self.samples[rows],
        )


def read_trials(
    paths: Sequence[str | os.PathLike[str]],
    operation: str = "conv",
    arch: str = "",
    store: Store | None = None,
) -> CandidateTrials:
    """Read the trials of an operation from datasets of `foretune tune`.

    A candidate that two sources measured on one device counts once, by the trial of more samples.
    Tasks of which nothing was measured are left out, and so are single samples of processors.

    Parameters
    ----------
    paths : sequence of path-like
    operation : str
    arch : str, optional
        Only devices of this arch.
    store : Store, optional
        Whose measurements are taken too.

    Raises
    ------
    InputError
        If a file is no such dataset, or nothing holds such a trial.
    """
    rows: dict[tuple[Problem, DeviceProperties, str, str], tuple[Any, ...]] = {}
    problems: dict[str, Problem] = {}
    everything = chain(*(_read(Path(path)) for path in paths), _of_store(store) if store else ())
    for row in everything:
        if row["operation"] != operation or (arch and row["arch"] != arch):
            continue
        if row["status"] == _NOT_TRIED or _may_be_delayed(row):
            continue
        text = row["problem"]
        if text not in problems:
            problems[text] = parse_problem(text)
        key = (problems[text], _device(row), row["solver"], row["config"])
        if key not in rows or rows[key][3] <= row["samples"]:
            rows[key] = _outcome(row)
    measured = {key[:2] for key, outcome in rows.items() if outcome[1] == MEASURED}
    kept = [(key, outcome) for key, outcome in rows.items() if key[:2] in measured]
    if not kept:
        wanted = f"{operation} on {arch}" if arch else operation
        sources = [*map(str, paths), *([store.path] if store else [])]
        raise InputError(f"no measured trial of {wanted}", ", ".join(sources))
    tasks = {key: place for place, key in enumerate(dict.fromkeys(key[:2] for key, _ in kept))}
    solvers = tuple(sorted({key[2] for key, _ in kept}))
    return CandidateTrials(
        tuple(tasks),
        solvers,
        np.array([tasks[key[:2]] for key, _ in kept], np.int64),
        np.array([solvers.index(key[2]) for key, _ in kept], np.int64),
        tuple(key[3] for key, _ in kept),
        np.array([outcome[0] for _, outcome in kept], np.float64),
        np.array([outcome[1] == TOO_SLOW for _, outcome in kept], bool),
        np.array([outcome[2] for _, outcome in kept], np.float64),
        np.array([outcome[3] for _, outcome in kept], np.int64),
    )


def _may_be_delayed(row: dict[str, Any]) -> bool:
    """Whether a time rests on a single sample of a processor, which runs other programs too.

    Of such samples some were a hundred times too long.
    """
    return row["status"] == MEASURED and row["samples"] < 2 and row.get("wave_size") == 1


def _of_store(store: Store) -> Iterator[dict[str, Any]]:
    """Give what a store holds as rows like those of a dataset."""
    for facts, found in store.contents():
        for one in found.solutions:
            yield {
                **facts,
                "operation": found.problem.operation,
                "problem": format_problem(found.problem),
                "status": MEASURED,
                **{name: getattr(one, name) for name in _OF_SOLUTION},
            }


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"can't be read as Parquet: {error}", str(path)) from None
    missing = [name for name in _NEEDED if name not in table.column_names]
    if missing:
        raise InputError(
            f"is no dataset of `foretune tune`: it lacks {', '.join(missing)}", str(path)
        )
    wanted = [name for name in (*_NEEDED, *_DEVICE_FIELDS) if name in table.column_names]
    rows: list[dict[str, Any]] = table.select(list(dict.fromkeys(wanted))).to_pylist()
    return rows


def _device(row: dict[str, Any]) -> DeviceProperties:
    # Times of two drivers or compilers are of one device here.
    facts = {name: row[name] for name in _DEVICE_FIELDS if row.get(name) is not None}
    return DeviceProperties(**{**facts, "driver": "", "compiler": ""})


def _outcome(row: dict[str, Any]) -> tuple[float, str, float, int]:
    status, time = row["status"], row["time_ms"]
    if status not in (MEASURED, TOO_SLOW) or time is None or not time > 0:
        return np.inf, status, np.nan, 0
    low, high = row["low_ms"], row["high_ms"]
    spread = np.nan if low is None or high is None else (high - low) / 2 / time
    return time, status, spread, row["samples"]
