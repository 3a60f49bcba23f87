"""MIOpen's databases as one tidy table. Needs the extra `train`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pandas as pd
from filelock import FileLock
from platformdirs import user_cache_path

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.archive import Issue, replace_file
from foretune.miopen.find_db import read_find_db
from foretune.miopen.keys import format_perf_key
from foretune.miopen.names import DatabaseFile, DatabaseName, find_databases
from foretune.miopen.perf_db import read_perf_db

#: MIOpen exports the fastest solvers of a problem only, this many at most (ROCm/MIOpen#2171).
MOST_LISTED = 4
_TABLE_VERSION = 1


@dataclass(frozen=True)
class DatasetReport:
    """What went into a table and what could not be used."""

    files: tuple[str, ...]
    problems: int
    items: int
    issues: tuple[Issue, ...]


def read_table(
    folder: str | os.PathLike[str], arch: str = "", strict: bool = False
) -> tuple[pd.DataFrame, DatasetReport]:
    """Table of all find-dbs in a folder, with the configs of the perf-dbs beside them.

    Parameters
    ----------
    folder : path-like
        For example ``share/miopen/db`` of an installed ROCm.
    arch : str, optional
        Only databases of this arch.
    strict : bool, default False
        Stop at the first line that can't be used.

    Returns
    -------
    table : pandas.DataFrame
        One row for each listed solver: `problem` (find-db key), `arch`, `compute_units`,
        `solver`, `algorithm`, `time_ms`, `workspace` (bytes), `config` (perf-db string or None),
        `rank` (0 is the fastest), `listed` (solvers listed for the problem) and `censored_ms`:
        an unlisted solver is slower than this, or not applicable. It is the slowest listed time
        where the list is full, and NaN where it isn't (then unlisted ones are not applicable, or
        the search that wrote the record did not try them). Zero and negative times are left out
        and counted as issues.
    report : DatasetReport

    Raises
    ------
    InputError
        If the folder holds no find-db of the arch.
    """
    databases = find_databases(folder, arch)
    find_dbs = [file for file in databases if file.name.kind == "find-db"]
    if not find_dbs:
        raise InputError(
            f"no find-db{' of ' + arch if arch else ''} here; names look like "
            "gfx942130.HIP.fdb.txt or gfx942130.HIP.fdb.txt.bz2",
            str(folder),
        )
    frames, issues = [], []
    for file in find_dbs:
        perf_db = _perf_db_of(file, databases)
        configs: dict[str, dict[str, str]] = {}
        if perf_db:
            reader = read_perf_db(perf_db.path, strict)
            configs = {record.key: dict(record.params) for record in reader}
            issues += reader.issues
        frame, found = _read_find_db(file, configs, strict)
        frames.append(frame)
        issues += found
    table = pd.concat(frames, ignore_index=True)
    problems = int((table["rank"] == 0).sum())
    report = DatasetReport(
        tuple(str(file.path) for file in find_dbs), problems, len(table), tuple(issues)
    )
    return table, report


def read_find_table(
    path: str | os.PathLike[str], arch: str, compute_units: int
) -> tuple[pd.DataFrame, tuple[Issue, ...]]:
    """Table of one find-db, whatever its name, without configs.

    Parameters
    ----------
    path : path-like
    arch : str
    compute_units : int
        Device that it was measured on.
    """
    name = DatabaseName(arch, compute_units, "find-db")
    frame, issues = _read_find_db(DatabaseFile(Path(path), name), {}, strict=False)
    return frame, tuple(issues)


def cached_table(
    folder: str | os.PathLike[str], arch: str = "", cache: str | os.PathLike[str] = ""
) -> pd.DataFrame:
    """As `read_table`, kept as Parquet and read from there while the databases don't change.

    Parameters
    ----------
    folder, arch
        As for `read_table`.
    cache : path-like, optional
        Folder to keep it in. Default: the user's cache folder.
    """
    facts = [str(_TABLE_VERSION), arch]
    for file in find_databases(folder, arch):
        stat = file.path.stat()
        facts += [str(file.path.resolve()), str(stat.st_size), str(stat.st_mtime_ns)]
    name = sha256("\0".join(facts).encode()).hexdigest()[:24]
    home = Path(cache) if cache else user_cache_path("foretune") / "tables"
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"{name}.parquet"
    with FileLock(f"{path}.lock"):
        if path.exists():
            return pd.read_parquet(path)
        table, _ = read_table(folder, arch)
        with replace_file(path) as temporary:
            table.to_parquet(temporary, index=False)
    return table


def _perf_db_of(find_db: DatabaseFile, databases: Iterable[DatabaseFile]) -> DatabaseFile | None:
    for file in databases:
        if (
            file.name.kind == "perf-db"
            and file.name.arch == find_db.name.arch
            and file.name.compute_units == find_db.name.compute_units
            and file.name.user == find_db.name.user
        ):
            return file
    return None


def _read_find_db(
    file: DatabaseFile, configs: dict[str, dict[str, str]], strict: bool
) -> tuple[pd.DataFrame, list[Issue]]:
    reader = read_find_db(file.path, strict)
    rows = []
    for record in reader:
        problem: ConvProblem | None = None
        if configs:
            try:
                problem = record.problem
            except InputError as error:
                reader.report(record, f"{error}; the line is skipped")
                continue
        params = configs.get(format_perf_key(problem), {}) if problem else {}
        items = [item for item in record.items if item.time_ms > 0]
        for item in record.items:
            if item.time_ms <= 0:
                reader.report(record, f"{item.solver} has a time of {item.time_ms} ms; skipped")
        items.sort(key=lambda item: item.time_ms)
        is_full = items and len(record.items) >= MOST_LISTED
        full = items[-1].time_ms if is_full else float("nan")
        for rank, item in enumerate(items):
            rows.append(
                (
                    record.key,
                    item.solver,
                    item.algorithm,
                    item.time_ms,
                    item.workspace,
                    params.get(item.solver),
                    rank,
                    len(items),
                    full,
                )
            )
    columns = [
        *("problem", "solver", "algorithm", "time_ms", "workspace", "config"),
        *("rank", "listed", "censored_ms"),
    ]
    frame = pd.DataFrame(rows, columns=columns)
    frame.insert(1, "arch", file.name.arch)
    frame.insert(2, "compute_units", file.name.compute_units)
    return frame, reader.issues
