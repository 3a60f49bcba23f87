"""Train the model of foretune's own kernels on an arch from datasets of `foretune tune`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from foretune.cli.extras import train_extra
from foretune.cli.json_text import to_json
from foretune.cli.progress import progress
from foretune.cli.table import format_bytes, format_table
from foretune.errors import InputError

if TYPE_CHECKING:
    from foretune.predictor.kernels.training import CandidateReport

EXAMPLES = """\
examples:
  a model of a new device, in three commands:
    foretune tune --suite gpu,varied --device cuda --budget 3600 --out mine.parquet
    foretune train kernels --data mine.parquet --arch sm_90 --out models/sm_90
    foretune compare kernels --data mine.parquet --arch sm_90 --models models
  with what this machine measured while programs ran, for this user's programs:
    foretune train kernels --data mine.parquet --user --arch sm_90

The bundle of each operation goes into a folder of its own below --out. The same command on the same
machine gives the same bundle. Needs foretune[train].
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="FILE.parquet",
        help="dataset of foretune tune; may be given several times",
    )
    parser.add_argument("--arch", required=True, help="such as sm_90, gfx942 or cpu")
    parser.add_argument(
        "--user",
        action="store_true",
        help="also learn what is in this user's database (found.db); the model goes to the user's "
        "data folder, where it comes before the one that foretune has, unless --out is given",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", help="the arch's folder (default: a folder named as the arch)"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=0,
        metavar="N",
        help="processes (default: one for each processor)",
    )
    parser.add_argument("--operation", default="conv", help="whose kernels (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """Train, print how good it is, and return the exit code."""
    if not options.data and not options.user:
        raise InputError("give at least one dataset by --data, or --user")
    if options.workers < 0:
        raise InputError(f"expected at least 0, got {options.workers}", "--workers")
    with train_extra("train"), progress() as show:
        from foretune.kernels.store import Store
        from foretune.predictor.kernels.models import user_models
        from foretune.predictor.kernels.training import train_kernels

        home = user_models() / options.arch if options.user else options.arch
        report = train_kernels(
            options.data,
            options.arch,
            options.out or home,
            operation=options.operation,
            store=Store() if options.user else None,
            workers=options.workers,
            on_progress=show,
        )
    print(to_json(report.to_dict()) if options.json else "\n".join(_lines(report)))
    return 0


def _lines(report: CandidateReport) -> Iterator[str]:
    yield (
        f"{report.folder}: {report.operation} on {report.arch}, "
        f"{format_bytes(report.bundle_bytes)}, trained in {report.seconds:.0f} s"
    )
    yield (
        f"{report.trials} trials of {report.problems} problems ({report.shapes} shapes); "
        f"{report.candidates} candidates are ranked"
    )
    yield ""
    yield "shapes that training never saw:"
    rows = [
        [
            group,
            f"{score['problems']}",
            f"{score['top1']:.1%}",
            f"{score['slowdown']:.3f}",
            f"{score['above_1_1x']:.1%}",
            f"{score['above_2x']:.1%}",
            f"{score['top4_slowdown']:.3f}",
        ]
        for group, score in report.metrics["scores"].items()
    ]
    headers = ["problems", "", "top-1", "slowdown", "above 1.1x", "above 2x", "top-4 measured"]
    yield format_table(headers, rows, headers[1:]).rstrip("\n")
    yield ""
    accepting = {row["stated_risk"]: row["coverage"] for row in report.metrics["accepting"]}
    yield "accepted without measuring: " + ", ".join(
        f"{share:.0%} at {risk:.0%} risk" for risk, share in accepting.items()
    )
