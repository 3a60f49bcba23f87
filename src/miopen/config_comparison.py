"""Scores what a bundle says of tuning parameters on a perf-db. Needs the extra `train`."""

from __future__ import annotations

import os
from pathlib import Path

from foretune.kernels.devices import device_facts
from foretune.miopen.config_ranking import TABLE_FILE, ConfigRanking
from foretune.miopen.config_scores import HELD_OUT, ConfigScores, score_configs
from foretune.miopen.config_table import read_tuned_problems
from foretune.miopen.names import find_databases
from foretune.miopen.solvers import ANY_VERSION, can_run, table_name


def compare_configs(
    db: str | os.PathLike[str],
    arch: str,
    compute_units: int,
    part: str,
    models_folder: str | os.PathLike[str],
    *,
    miopen: str = ANY_VERSION,
) -> list[ConfigScores]:
    """Score a bundle's ranking of configs, the usual config and AMD's kernel-tuning nets.

    Parameters
    ----------
    db : path-like
        Folder of databases and nets. What the perf-db of the device has is what wins; the
        find-db of the device tells sizes that the perf-db doesn't.
    arch : str
    compute_units : int
    part : {'test', 'calibrate', 'unseen', 'all'}
        Shapes to score. Those that were learnt from never are, so "all" is "unseen" here.
    models_folder : path-like
        Folder of bundles.
    miopen : str, default 'any'
        Release whose solvers count.

    Returns
    -------
    list of ConfigScores
        One for each solver, direction and data type. Empty if the folder has no perf-db of the
        device, or the bundle no ranking of configs.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as without_databases:
    ...     compare_configs(without_databases, "gfx942", 304, "test", without_databases)
    []
    """
    bundle = Path(models_folder) / arch
    databases = [file for file in find_databases(db, arch) if not file.name.user]
    tuned = [
        file
        for file in databases
        if file.name.kind == "perf-db" and file.name.compute_units == compute_units
    ]
    if not tuned or not (bundle / TABLE_FILE).exists():
        return []
    ranking = ConfigRanking(bundle)
    device = device_facts(arch, compute_units)
    parts = [name for name in HELD_OUT if part in (name, "unseen", "all")]
    tables, _ = read_tuned_problems(tuned[0], databases)
    return [
        score
        for table in tables
        if can_run(table.solver, arch, miopen)
        for score in score_configs(
            table,
            ranking.by_type(table_name(table.solver), table.direction),
            device,
            Path(db),
            parts,
        )
    ]
