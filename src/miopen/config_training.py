"""Trains the ranking of tuning parameters from a perf-db. Needs the extra `train`.

Only shapes of the training part are learnt from, and what is reported is measured on the others.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from foretune.errors import InputError
from foretune.kernels.devices import DeviceFacts, device_facts
from foretune.miopen.config_fit import LEAST_SEEN, fit_configs
from foretune.miopen.config_ranking import FOREST_FILE, FORMAT_VERSION, TABLE_FILE, model_name
from foretune.miopen.config_scores import ConfigScores, score_configs
from foretune.miopen.config_table import ConfigTable, read_tuned_problems
from foretune.miopen.names import (
    USUAL_COMPUTE_UNITS,
    DatabaseFile,
    find_databases,
    parse_arch,
)
from foretune.predictor.boosting import TreeSettings
from foretune.predictor.features.conv import FEATURE_VERSION
from foretune.predictor.forest import Forest, save_forests

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class _Trained:
    """What comes back from a worker; a forest that was used can't be pickled itself."""

    name: str
    packed: bytes
    content: dict[str, Any]
    scores: list[ConfigScores]


def _fit_and_score(
    table: ConfigTable, device: DeviceFacts, nets: Path | None, settings: TreeSettings | None
) -> _Trained | None:
    # Sums of several threads round differently, and their number follows the surroundings.
    with threadpool_limits(1, user_api="blas"):
        model = fit_configs(table, device, settings)
    if model is None:
        return None
    name = model_name(table.solver, table.direction)
    scores = score_configs(table, model.by_type(), device, nets)
    return _Trained(name, model.forest.to_bytes(), model.to_dict(), scores)


def train_configs(
    folder: str | os.PathLike[str],
    arch: str,
    out: str | os.PathLike[str],
    *,
    workers: int = 0,
    share: float = 1.0,
    settings: TreeSettings | None = None,
    on_progress: Progress | None = None,
) -> dict[str, Any]:
    """Train the ranking of every tunable solver of an arch, and write what `ConfigRanking` reads.

    The same databases give the same files, whatever the number of workers.

    Parameters
    ----------
    folder : path-like
        Databases, and AMD's kernel-tuning nets to compare with if they are there.
    arch : str
        Of the perf-dbs of an arch one is learnt from, that of its usual compute units if there is
        one; other counts are answered by the same model.
    out : path-like
        Where ``configs.json`` and ``configs.forests`` go.
    workers : int, default 0
        Solvers trained at the same time, one thread each; 0 takes the machine's processors.
    share : float, default 1.0
        Share of the shapes to use, for trials.
    settings : TreeSettings, optional
        How trees are grown. Default: `default_settings`.
    on_progress : callable, optional
        Called with a text, steps done and steps in all.

    Returns
    -------
    dict
        For JSON: "perf_db", "compute_units", "skipped" (lines that can't be used) and "scores",
        the fields of a `ConfigScores` each. Empty, and nothing is written, where the arch has no
        perf-db.

    Raises
    ------
    InputError
        If the perf-db has nothing to learn from.

    Examples
    --------
    >>> import tempfile
    >>> train_configs("/opt/rocm/share/miopen/db", "gfx942", "bundle")  # doctest: +SKIP
    >>> with tempfile.TemporaryDirectory() as without_databases:
    ...     train_configs(without_databases, "gfx908", without_databases)
    {}
    """
    databases = [file for file in find_databases(folder, arch) if not file.name.user]
    file = _usual_perf_db(databases, arch)
    if file is None:
        return {}
    name = file.name
    tables, reader = read_tuned_problems(file, databases)
    tables = [table.thin(share) for table in tables]
    device = device_facts(name.arch, name.compute_units)
    scores = train_tables(
        [table for table in tables if len(table.position)],
        device,
        Path(out),
        workers=workers,
        nets=Path(folder),
        settings=settings,
        on_progress=on_progress,
    )
    return {
        "perf_db": file.path.name,
        "compute_units": name.compute_units,
        "skipped": len(reader.issues),
        "scores": [asdict(score) for score in scores],
    }


def _usual_perf_db(databases: Iterable[DatabaseFile], arch: str) -> DatabaseFile | None:
    usual = USUAL_COMPUTE_UNITS.get(parse_arch(arch), ())
    by_units = {file.name.compute_units: file for file in databases if file.name.kind == "perf-db"}
    for units in (*usual, *sorted(by_units, reverse=True)):
        if units in by_units:
            return by_units[units]
    return None


def train_tables(
    tables: Sequence[ConfigTable],
    device: DeviceFacts,
    folder: Path,
    *,
    workers: int = 1,
    nets: Path | None = None,
    settings: TreeSettings | None = None,
    on_progress: Progress | None = None,
) -> list[ConfigScores]:
    """Train, score and write the models of tuned problems; see `train_configs`.

    Parameters
    ----------
    tables : sequence of ConfigTable
        What `tuned_problems` gave.
    device : DeviceFacts
        The device that they were tuned on.
    folder : Path
        Where the files go.
    workers, settings, on_progress
        As for `train_configs`.
    nets : Path, optional
        Folder with AMD's kernel-tuning nets.

    Returns
    -------
    list of ConfigScores
        One for each solver, direction and data type, on shapes that were not learnt from.
    """
    workers = workers or os.cpu_count() or 1
    # The longest first, so that no worker is left with a long one at the end.
    tables = sorted(tables, key=lambda table: -len(table.position))
    done: list[_Trained | None] = []

    def progress() -> None:
        if on_progress:
            on_progress("configs", len(done), len(tables))

    progress()
    if workers == 1:
        for table in tables:
            done.append(_fit_and_score(table, device, nets, settings))
            progress()
    else:
        # A fork of a process whose OpenMP has run may hang.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            futures = [
                pool.submit(_fit_and_score, table, device, nets, settings) for table in tables
            ]
            for future in futures:
                done.append(future.result())
                progress()
    models = sorted((entry for entry in done if entry), key=lambda entry: entry.name)
    if not models:
        raise InputError(
            f"no config won {LEAST_SEEN} problems of the training part; nothing to learn",
            "perf-db",
        )
    folder.mkdir(parents=True, exist_ok=True)
    save_forests(
        folder / FOREST_FILE, {model.name: Forest.from_bytes(model.packed) for model in models}
    )
    content = {
        "format_version": FORMAT_VERSION,
        "feature_version": FEATURE_VERSION,
        "arch": device.arch,
        "compute_units": device.compute_units,
        "models": {model.name: model.content for model in models},
    }
    (folder / TABLE_FILE).write_text(json.dumps(content, separators=(",", ":")) + "\n")
    return [score for model in models for score in model.scores]
