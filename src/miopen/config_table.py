"""Tuned problems of a perf-db as tables, one a solver and direction, ready to learn from."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import compress

import numpy as np
import numpy.typing as npt

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.config_grammar import parse_config
from foretune.miopen.find_db import FindRecord, read_find_db
from foretune.miopen.keys import format_find_key, format_perf_key, is_perf_key_exact
from foretune.miopen.names import DatabaseFile
from foretune.miopen.perf_db import PerfDbReader, PerfRecord, read_perf_db
from foretune.predictor.features.conv import DTYPE_CODES, LAYOUT_CODES, RAW_NAMES, raw_numbers
from foretune.predictor.split import TRAIN_END, shape_position

Floats = npt.NDArray[np.float64]

_FORWARD_KEY = re.compile("-F(?:_[a-zA-Z0-9_]+)?$")


@dataclass(frozen=True)
class ConfigTable:
    """Problems that one solver was tuned for, in one direction.

    Attributes
    ----------
    solver, direction : str
    raw : array of shape (problems, `RAW_NAMES`)
    position : array of shape (problems,)
        Place of each problem's shape in the split.
    configs : list of str
        The config that won each.
    dtypes : list of str
    held_out_keys : list of str
        Find-db keys of the problems that aren't in the training part, in order.
    """

    solver: str
    direction: str
    raw: Floats
    position: Floats
    configs: list[str]
    dtypes: list[str]
    held_out_keys: list[str]

    def thin(self, share: float) -> ConfigTable:
        """Keep about this share of the shapes."""
        if share >= 1:
            return self
        keep = (self.position * 2**20) % 1 < share
        return ConfigTable(
            self.solver,
            self.direction,
            self.raw[keep],
            self.position[keep],
            list(compress(self.configs, keep)),
            list(compress(self.dtypes, keep)),
            list(compress(self.held_out_keys, keep[~self.is_training])),
        )

    @property
    def is_training(self) -> npt.NDArray[np.bool_]:
        """Which problems may be learnt from."""
        return self.position < TRAIN_END


@dataclass
class _Rows:
    raw: list[list[float]] = field(default_factory=list)
    position: list[float] = field(default_factory=list)
    configs: list[str] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    held_out_keys: list[str] = field(default_factory=list)


def tuned_problems(
    records: Iterable[PerfRecord],
    found: Iterable[FindRecord] = (),
    report: Callable[[PerfRecord, str], None] | None = None,
) -> list[ConfigTable]:
    """Sort a perf-db's records by solver and direction.

    A perf-db key doesn't say the size of x for gradients with a stride. Where the find-db of the
    same device has problems with that key, those are taken (each of them was run with the
    config), else the smallest size. Problems whose key is shared with a shape outside the
    training part are not learnt from.

    Parameters
    ----------
    records : iterable of PerfRecord
        The perf-db of a device.
    found : iterable of FindRecord, optional
        The find-db of the same device.
    report : callable, optional
        Told of each record that can't be read, and why; such as `PerfDbReader.report`.

    Returns
    -------
    list of ConfigTable
        Sorted by solver and direction. Problems with types or layouts that no feature describes
        are left out.
    """
    strided = _strided_problems(found)
    tables: defaultdict[tuple[str, str], _Rows] = defaultdict(_Rows)
    for record in records:
        try:
            problem = record.problem
            for solver, config in record.params.items():
                _check_config(solver, config)
        except InputError as error:
            if report:
                report(record, f"{error}; the line is skipped")
            continue
        if problem.dtype not in DTYPE_CODES or problem.layout not in LAYOUT_CODES:
            continue
        problems = strided.get(record.key, [problem])
        position = max(map(shape_position, problems))
        for problem in problems:
            raw = raw_numbers(problem)
            key = format_find_key(problem) if position >= TRAIN_END else ""
            for solver, config in record.params.items():
                rows = tables[solver, problem.direction]
                rows.raw.append(raw)
                rows.position.append(position)
                rows.configs.append(config)
                rows.dtypes.append(problem.dtype)
                if key:
                    rows.held_out_keys.append(key)
    return [
        ConfigTable(
            solver,
            direction,
            np.array(rows.raw, np.float64).reshape(-1, len(RAW_NAMES)),
            np.array(rows.position),
            rows.configs,
            rows.dtypes,
            rows.held_out_keys,
        )
        for (solver, direction), rows in sorted(tables.items())
    ]


def read_tuned_problems(
    perf_db: DatabaseFile, databases: Iterable[DatabaseFile]
) -> tuple[list[ConfigTable], PerfDbReader]:
    """Sort a perf-db's records, with the find-db of the same device if it is there.

    Parameters
    ----------
    perf_db : DatabaseFile
    databases : iterable of DatabaseFile
        What a folder has for the arch.

    Returns
    -------
    list of ConfigTable
        As of `tuned_problems`.
    PerfDbReader
        With what could not be read.
    """
    reader = read_perf_db(perf_db.path)
    found: Iterable[FindRecord] = ()
    for other in databases:
        if other.name.kind == "find-db" and other.name.compute_units == perf_db.name.compute_units:
            found = read_find_db(other.path)
    return tuned_problems(reader, found, reader.report), reader


def _strided_problems(found: Iterable[FindRecord]) -> dict[str, list[ConvProblem]]:
    """Problems by perf-db key, for keys that don't say the size of x."""
    strided: defaultdict[str, list[ConvProblem]] = defaultdict(list)
    for record in found:
        # Parsing is most of the time here, and forward keys are exact.
        if _FORWARD_KEY.search(record.key):
            continue
        try:
            problem = record.problem
        except InputError:
            continue
        if not is_perf_key_exact(problem):
            strided[format_perf_key(problem)].append(problem)
    return strided


@cache
def _check_config(solver: str, config: str) -> None:
    parse_config(solver, config)
