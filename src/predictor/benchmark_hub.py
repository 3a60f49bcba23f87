"""Recorded tuning runs in the format of Kernel Tuner's cache files. Needs the extra `train`.

Such a file holds every config of one kernel on one device and one problem size, as the benchmark
hub of auto-tuning publishes them: a test bed for models of configs and for active sampling. It
says nothing about problems of other sizes.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from foretune.errors import InputError
from foretune.kernels.space import Config, Space, Tunable

#: Errors by the names of Kernel Tuner's classes, in the words of `foretune tune`.
_STATUSES = MappingProxyType(
    {
        "CompilationFailedConfig": "compile error",
        "RuntimeFailedConfig": "failed",
        "InvalidConfig": "not applicable",
    }
)


@dataclass(frozen=True)
class RecordedRun:
    """Every config of a kernel on a device.

    Attributes
    ----------
    device : str
        As its driver calls it; may be empty.
    kernel : str
    problem_size : tuple of int
    space : Space
        Of the parameters that vary; without constraints, so it holds configs that weren't run.
    table : pandas.DataFrame
        A row for each config that was run: its parameters, "status" ("measured", "compile error",
        "failed", "not applicable"), "time_ms" (NaN unless measured), "build_seconds" and
        "measure_seconds".
    """

    device: str
    kernel: str
    problem_size: tuple[int, ...]
    space: Space
    table: pd.DataFrame

    def configs(self) -> list[Config]:
        """List the configs of the table, row by row."""
        names = list(self.space.names)
        rows = self.table[names].to_numpy().tolist()
        return [Config(dict(zip(names, map(int, row), strict=True))) for row in rows]


def read_benchmark_hub(path: str | os.PathLike[str]) -> RecordedRun:
    """Read a cache file of Kernel Tuner, plain or compressed by gzip.

    A file that a run still appends to lacks its end, which is filled in.

    Parameters
    ----------
    path : path-like

    Raises
    ------
    InputError
        If it can't be read or is no such file.

    Examples
    --------
    >>> import tempfile
    >>> text = '''{"device_name": "A100", "kernel_name": "copy", "problem_size": [4096],
    ...  "tune_params_keys": ["block", "unroll"],
    ...  "tune_params": {"block": [32, 64], "unroll": [1]}, "cache": {
    ...  "32,1": {"block": 32, "unroll": 1, "time": 2.5, "compile_time": 900.0},
    ...  "64,1": {"block": 64, "unroll": 1, "time": "RuntimeFailedConfig"}'''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "copy.json")
    ...     _ = file.write_text(text + ",")
    ...     run = read_benchmark_hub(file)
    >>> run.space.names, run.table["status"].tolist(), run.table["build_seconds"].tolist()
    (('block',), ['measured', 'failed'], [0.9, 0.0])
    """
    content = _content(Path(path))
    where = str(path)
    names = _field(content, "tune_params_keys", list, where)
    values = _field(content, "tune_params", dict, where)
    entries = _field(content, "cache", dict, where)
    if not entries:
        raise InputError("holds no config", where)
    varying = [name for name in names if len(values.get(name, ())) != 1]
    rows = [_row(key, entry, varying, where) for key, entry in entries.items()]
    table = pd.DataFrame(rows)
    tunables = []
    for name in varying:
        # Some parameters take values that the declaration leaves out, or the other way round.
        taken = sorted({int(value) for value in table[name]})
        tunables.append(Tunable(name, tuple(taken), taken[0], "linear"))
    return RecordedRun(
        str(content.get("device_name", "")),
        str(content.get("kernel_name", "")),
        _problem_size(content.get("problem_size", ()), where),
        Space(tuple(tunables)),
        table,
    )


def _content(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", str(path)) from None
    except (EOFError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"can't be read: {error}", str(path)) from None
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        try:
            content = json.loads(text.rstrip().rstrip(",") + "}}")
        except json.JSONDecodeError:
            raise InputError(f"is no JSON: {error.msg}", f"{path}, line {error.lineno}") from None
    if not isinstance(content, dict):
        raise InputError("is no cache file of Kernel Tuner: expected an object", str(path))
    return content


def _field(content: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    value = content.get(name)
    if not isinstance(value, kind):
        raise InputError(f"is no cache file of Kernel Tuner: no {kind.__name__} {name!r}", where)
    return value


def _problem_size(value: Any, where: str) -> tuple[int, ...]:
    sizes = value if isinstance(value, list | tuple) else [value]
    try:
        return tuple(int(size) for size in sizes)
    except (TypeError, ValueError):
        raise InputError(f"expected numbers, got {value!r}", f"{where}, problem_size") from None


def _row(key: str, entry: Any, names: list[str], where: str) -> dict[str, Any]:
    at = f"{where}, config {key!r}"
    if not isinstance(entry, dict):
        raise InputError(f"expected an object, got {type(entry).__name__}", at)
    row: dict[str, Any] = {}
    for name in names:
        value = entry.get(name)
        if not isinstance(value, int):
            raise InputError(f"expected a whole number, got {value!r}", f"{at}, {name}")
        row[name] = int(value)
    time = entry.get("time")
    # What failed has an error's name there, or in old files a time of 1e20.
    ms = time if isinstance(time, int | float) and 0 < time < 1e20 else None
    row["status"] = _STATUSES.get(str(time), "failed") if ms is None else "measured"
    row["time_ms"] = float("nan") if ms is None else float(ms)
    row["build_seconds"] = _seconds(entry, "compile_time", at)
    row["measure_seconds"] = _seconds(entry, "benchmark_time", at) + _seconds(
        entry, "verification_time", at
    )
    return row


def _seconds(entry: Mapping[str, Any], name: str, at: str) -> float:
    value = entry.get(name) or 0.0
    if not isinstance(value, int | float):
        raise InputError(f"expected milliseconds, got {value!r}", f"{at}, {name}")
    return value / 1e3
