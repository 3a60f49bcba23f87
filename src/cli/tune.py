"""Measure every config of foretune's own kernels for a list of problems, and keep all results.

A run that was stopped, or killed, goes on where it was when it is started again: the journal beside
the dataset holds every trial, failures with their reasons too.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from foretune.cli.extras import train_extra, tune_extra
from foretune.cli.problems import name_of, parse_problems
from foretune.cli.progress import progress
from foretune.cli.table import format_table
from foretune.errors import InputError
from foretune.kernels.fleet import Fleet
from foretune.kernels.journal import Journal
from foretune.kernels.problem import Problem
from foretune.kernels.problem_text import parse_problem
from foretune.kernels.runtime.device import open_device
from foretune.kernels.suites import read_suite, suite_names
from foretune.kernels.task import Chooser
from foretune.kernels.tune import DEFAULT_TIMEOUT, TuneReport, tune
from foretune.predictor.candidates import RankedCandidate
from foretune.predictor.kernels.models import candidate_model
from foretune.predictor.kernels.portfolio import PortfolioChooser, read_portfolio

EXAMPLES = f"""\
examples:
  all layers of ResNet-50 on an NVIDIA GPU, for an hour:
    foretune tune --suite resnet50 --device cuda --budget 3600 --out resnet50.parquet
  the candidates that the model of this device ranks, before anything else:
    foretune tune --suite gpu --out a.parquet \\
        --first trained_models/kernels/sm_90/conv/portfolio.txt
  on all GPUs of a Ray cluster; "local" makes a cluster of this machine:
    foretune tune --suite gpu --cluster 10.0.0.1:6379 --budget 3600 --out gpu.parquet
  where the time is short: a model chooses what to measure, and learns from it
    foretune tune --suite unet --budget 300 --active --out unet.parquet
  your own problems (find-db keys, driver lines), 20 configs of each solver:
    foretune tune --suite problems.txt --device cpu --sample 20 --out mine.parquet

Suites that come with foretune: {", ".join(suite_names())}; several are joined by commas.
Beside DATASET.parquet stand DATASET.journal (SQLite, written all the time) and DATASET.md (what
the dataset holds). Needs foretune[tune].

exit codes: 0 the dataset is written, whether or not the budget was enough; 2 some input can't be
used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--suite", required=True, metavar="NAME|FILE", help="problems to tune")
    parser.add_argument("--out", required=True, metavar="DATASET.parquet", help="the dataset")
    parser.add_argument(
        "--device",
        default="",
        help="cpu, cuda, hip, cuda:1, or several: cuda:0,cuda:1 (default: the first GPU, else cpu)",
    )
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS|local",
        help="measure and compile on a Ray cluster, one process a GPU (or with --device cpu, a "
        "machine); needs foretune[cluster]",
    )
    parser.add_argument(
        "--devices", type=int, metavar="N", help="how many of the cluster's (default: all)"
    )
    parser.add_argument(
        "--budget", type=float, metavar="S", help="seconds (default: until all is tried)"
    )
    parser.add_argument(
        "--sample", type=int, metavar="N", help="configs of each solver and problem (default: all)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="chooses the order of configs (default %(default)s)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_TIMEOUT,
        metavar="S",
        help="seconds after which a config counts as hung (default %(default)s)",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes that compile (default: one a processor)"
    )
    parser.add_argument(
        "--first",
        metavar="FILE",
        help="candidates that are tried on every problem before the search goes on, one a line as "
        "Solver{NAME=value,...}, the most useful first",
    )
    parser.add_argument(
        "--active",
        action="store_true",
        help="a model that learns during the run chooses what is tried next; needs foretune[train]",
    )


def run(options: argparse.Namespace) -> int:
    """Tune, write the dataset, print what was done, and return the exit code."""
    with tune_extra("tune"):
        from foretune.kernels.export import export
    problems = read_suite(options.suite, parse_problems)
    out = Path(options.out)
    if out.suffix != ".parquet":
        raise InputError("expected a name that ends in .parquet", f"--out {out}")
    if not out.parent.is_dir():
        raise InputError("there is no such folder", str(out.parent))
    if options.workers is not None and options.workers < 1:
        raise InputError(f"expected at least 1, got {options.workers}", "--workers")
    chooser = _chooser(options)
    if options.devices is not None and not options.cluster:
        raise InputError(
            "needs --cluster; without one, list them: --device cuda:0,cuda:1", "--devices"
        )
    with closing(Journal(out.with_suffix(".journal"))) as journal:
        fleet = _cluster(options) if options.cluster else None
        try:
            with progress() as show:
                report = tune(
                    problems,
                    journal,
                    options.device,
                    budget=options.budget,
                    sample=options.sample,
                    seed=options.seed,
                    timeout=options.timeout,
                    workers=options.workers,
                    show=show,
                    chooser=chooser,
                    fleet=fleet,
                )
        except KeyboardInterrupt:
            # What was measured before is worth as much.
            export(journal, out)
            raise
        rows = export(journal, out)
        for device in journal.used:
            journal.use_device(device)
            if len(journal.used) > 1:
                print(f"{device.name}, {device.driver}, {device.compiler}:")
            print(_winners(journal), end="")
    print(_summary(report))
    print(f"{out}: {rows} rows; {out.with_suffix('.md')} says what they are")
    return 0


def _chooser(options: argparse.Namespace) -> Chooser | None:
    """Give what chooses the configs, if it isn't the search."""
    if options.first and options.active:
        raise InputError("can't go with --first: choose one", "--active")
    if options.first:
        return PortfolioChooser(read_portfolio(options.first))
    if not options.active:
        return None
    with train_extra("--active"):
        from foretune.predictor.active import ActiveChooser
    # The devices of a cluster aren't known before it is joined.
    return ActiveChooser(None if options.cluster else _prior(options.device), options.seed)


def _prior(device: str) -> Callable[[Problem, int], Sequence[RankedCandidate]]:
    """Give what asks an earlier model, the user's or a shipped one, where there is any."""
    properties = open_device(device.partition(",")[0]).properties

    def ranked(problem: Problem, count: int) -> Sequence[RankedCandidate]:
        model = candidate_model(properties, problem.operation)
        return () if model is None else model.rank(problem, properties, top=count).candidates

    return ranked


def _cluster(options: argparse.Namespace) -> Fleet:
    try:
        from foretune.kernels.cluster import ClusterFleet
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise InputError(
            "needs foretune[cluster]: pip install 'foretune[cluster]'", "--cluster"
        ) from None
    return ClusterFleet(options.cluster, options.device, options.devices, options.workers)


def _winners(journal: Journal) -> str:
    best: dict[str, tuple[float, str, str]] = {}
    counts: Counter[str] = Counter()
    for trial in journal.trials():
        if trial.status == "measured" and trial.time_ms is not None:
            counts[trial.problem] += 1
            found = (trial.time_ms, trial.solver, trial.config)
            best[trial.problem] = min(best.get(trial.problem, found), found)
    rows = []
    for text, (time_ms, solver, config) in best.items():
        problem = parse_problem(text)
        rate = f"{problem.flops / time_ms / 1e6:.4g}"
        rows.append((name_of(problem), f"{counts[text]}", solver, f"{time_ms:.4g}", rate, config))
    headers = ("problem", "configs", "fastest", "ms", "GFLOP/s", "config")
    return format_table(headers, rows, right={"configs", "ms", "GFLOP/s"})


def _summary(report: TuneReport) -> str:
    trials = ", ".join(f"{count} {status}" for status, count in report.statuses.most_common())
    seconds = max(report.seconds, 1e-9)
    return (
        f"{report.statuses.total()} trials in {report.seconds:.0f} s ({trials or 'none'}); "
        f"{report.built} kernels built; "
        f"{100 * report.measuring_seconds / seconds:.0f}% of the time was spent measuring, "
        f"{100 * report.waiting_seconds / seconds:.0f}% waiting for kernels to be built "
        f"(building went on during {100 * report.compiling_seconds / seconds:.0f}%); "
        + (f"{report.devices} devices measured; " if report.devices > 1 else "")
        + (f"{report.losses} measuring processes were lost; " if report.losses else "")
        + ("everything was tried" if report.is_complete else "not everything was tried")
    )
