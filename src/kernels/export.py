"""A journal of tuning runs as a Parquet file with a datasheet. Needs the extra `tune`."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from foretune.files import replace_file
from foretune.kernels.gains import WORTHWHILE, device_of_facts, tuning_gains
from foretune.kernels.journal import NOT_APPLICABLE, Journal, Trial
from foretune.kernels.problem_text import parse_problem

#: What each column holds, for the datasheet.
COLUMNS = {
    "operation": "what the problem is of, such as conv",
    "problem": "canonical text, for `foretune.kernels.problem_text.parse_problem`",
    "flops": "floating-point operations of the direct algorithm",
    "solver": "id of the solver",
    "config": "its tuning parameters; empty where the solver is not applicable",
    "status": "measured, too slow (not run to its end: time_ms is what it takes at least), wrong, "
    "crashed, hung, out of memory, compile error, failed, not applicable",
    "reason": "why it isn't measured, or why it was sampled less than others",
    "time_ms": "median of the samples, milliseconds of one run on a cleared cache",
    "low_ms": "lower quartile",
    "high_ms": "upper quartile",
    "samples": "samples behind the median; few for those that were no match for the fastest",
    "repeats": "runs of a sample, where one was too short for the clock",
    "is_tied": "couldn't be told from the fastest of its race",
    "workspace": "bytes of scratch memory",
    "error": "largest difference from the naive solver in FP32, over the size of the sums",
    "at": "when",
    "registers": "of one thread, the most of its kernels; null where the backend can't say",
    "spill_bytes": "memory of one thread for what found no register, and for arrays; likewise",
    "local_bytes": "LDS or shared memory of a block; likewise",
}
_TYPES = {
    "flops": pa.int64(),
    "time_ms": pa.float64(),
    "low_ms": pa.float64(),
    "high_ms": pa.float64(),
    "samples": pa.int32(),
    "repeats": pa.int32(),
    "is_tied": pa.bool_(),
    "workspace": pa.int64(),
    "error": pa.float64(),
    "at": pa.timestamp("ms", tz="UTC"),
    "registers": pa.int32(),
    "spill_bytes": pa.int32(),
    "local_bytes": pa.int32(),
}
_WORDS = pa.dictionary(pa.int32(), pa.string())


def export(journal: Journal, path: str | os.PathLike[str]) -> int:
    """Write a journal as Parquet, and a datasheet beside it, each whole or not at all.

    Parameters
    ----------
    journal : Journal
    path : path-like
        Of the Parquet file; the datasheet has the same name with ".md".

    Returns
    -------
    int
        Rows.

    Examples
    --------
    >>> import tempfile
    >>> from foretune.kernels.runtime.properties import DeviceProperties
    >>> device = DeviceProperties("cuda", "NVIDIA H200", "sm_90", 132, 32, 49152, 1024)
    >>> text = "conv direction=F batch=1 in_channels=3 in_size=8x8 out_channels=4 filter_size=3x3"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = Journal(Path(folder, "a.journal"))
    ...     journal.use_device(device)
    ...     journal.record(Trial(text, "ConvNaive", "THREADS=64", "measured", time_ms=1.5))
    ...     export(journal, Path(folder, "a.parquet"))
    ...     pq.read_table(Path(folder, "a.parquet"))["arch"].to_pylist()
    1
    ['sm_90']
    """
    path = Path(path)
    devices: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    gains: dict[str, list[float]] = defaultdict(list)
    for facts, found in journal.devices():
        devices.append(facts)
        trials = list(found)
        rows += [{**_row(trial), **facts} for trial in trials]
        for name, ratios in tuning_gains(trials, device_of_facts(facts)).items():
            gains[name] += ratios.values()
    names = [*COLUMNS, *dict.fromkeys(name for facts in devices for name in facts)]
    columns = {name: _column(name, [row.get(name) for row in rows]) for name in names}
    with replace_file(path) as temporary:
        pq.write_table(pa.table(columns), temporary, compression="zstd")
    with replace_file(path.with_suffix(".md")) as temporary:
        text = "\n".join(_datasheet(path, journal, devices, rows, gains)) + "\n"
        temporary.write_text(text, encoding="utf-8")
    return len(rows)


def _row(trial: Trial) -> dict[str, Any]:
    operation, flops = _of_problem(trial.problem)
    values = {field.name: getattr(trial, field.name) for field in fields(trial)}
    moment = datetime.fromtimestamp(trial.at, UTC)
    return {**values, "operation": operation, "flops": flops, "at": moment}


@lru_cache(maxsize=4096)
def _of_problem(text: str) -> tuple[str, int]:
    problem = parse_problem(text)
    return problem.operation, problem.flops


def _column(name: str, values: list[Any]) -> pa.Array:
    if name in _TYPES:
        return pa.array(values, _TYPES[name])
    if all(isinstance(value, str) for value in values):
        return pa.array(values, _WORDS)
    return pa.array(values)


def _datasheet(
    path: Path,
    journal: Journal,
    devices: list[dict[str, Any]],
    rows: list[dict[str, Any]],
    gains: dict[str, list[float]],
) -> Iterator[str]:
    """Lines of the datasheet, in Markdown."""
    problems = {row["problem"] for row in rows}
    yield f"# {path.name}"
    yield ""
    yield (
        f"Times of foretune's kernels: {len(rows)} trials of {len(problems)} problems, made by "
        "`foretune tune`. A row is a candidate (solver and config) for a problem on a device; what "
        "failed is listed with its reason, and so are solvers that are not applicable."
    )
    yield from ("", "## Devices", "")
    for facts in devices:
        yield "- " + ", ".join(f"{name} {value}" for name, value in facts.items())
    yield from ("", "## How it was measured", "")
    yield (
        "Every candidate was compared with the naive solver in FP32 on the device, and then timed "
        "on a cleared cache: on GPUs between two events, on processors by the process's clock. The "
        "fastest of each visit raced in interleaved rounds; the two first were sampled until their "
        "medians' 95% intervals separated. What lost clearly has one sample. Which configs were "
        "tried, and in which order, is described in `foretune/kernels/tune.py`."
    )
    yield from ("", "## Sessions", "")
    for session in journal.sessions():
        said = ", ".join(
            f"{name} {round(value, 1) if isinstance(value, float) else value}"
            for name, value in session.items()
            if name not in ("began", "ended") and value not in (None, {})
        )
        began = datetime.fromtimestamp(session["began"], UTC)
        yield f"- {began:%Y-%m-%d %H:%M} UTC: {said}"
    yield from ("", "## Trials by status", "", "| status | trials |", "|---|---|")
    for status, count in Counter(row["status"] for row in rows).most_common():
        yield f"| {status} | {count} |"
    yield from (
        "",
        "## Solvers",
        "",
        "| solver | trials | measured | problems won | with default | gain "
        f"{WORTHWHILE:g} | largest gain |",
        "|---|---|---|---|---|---|---|",
    )
    wins = Counter(solver for solver in _winners(rows).values())
    for solver in sorted({row["solver"] for row in rows}):
        own = [row for row in rows if row["solver"] == solver and row["status"] != NOT_APPLICABLE]
        measured = sum(row["status"] == "measured" for row in own)
        known = gains.get(solver, [])
        most = f"{max(known):.2f}" if known else ""
        many = sum(gain >= WORTHWHILE for gain in known)
        cells = (solver, len(own), measured, wins[solver], len(known), many, most)
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    yield (
        "A gain is the time of a solver's default config over that of its best one, for problems "
        f"of which the default and another config were measured; gain {WORTHWHILE:g} counts those "
        "of as much or more."
    )
    yield from ("", "## Columns", "", "| column | meaning |", "|---|---|")
    for name, meaning in COLUMNS.items():
        yield f"| {name} | {meaning} |"
    yield f"| {', '.join(devices[0]) if devices else ''} | of the device and what runs it |"


def _winners(rows: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """Solver of the fastest candidate of each problem on each device."""
    best: dict[tuple[str, str], tuple[float, str]] = defaultdict(lambda: (float("inf"), ""))
    for row in rows:
        if row["status"] == "measured":
            key = (row["problem"], f"{row['name']} {row['driver']} {row['compiler']}")
            best[key] = min(best[key], (row["time_ms"], row["solver"]))
    return {key: solver for key, (_, solver) in best.items()}
