"""Train the models of an arch from a folder of databases, calibrate them, and write a bundle."""

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
    from foretune.miopen.training import TrainingReport

EXAMPLES = """\
examples:
  foretune train miopen --db /opt/rocm/share/miopen/db --arch gfx942 --out models/gfx942
  foretune predict --models models --arch gfx942 --log train.log
  a trial on a fiftieth of the shapes:
    foretune train miopen --db /opt/rocm/share/miopen/db --arch gfx942 --share 0.02 --out trial

The same command on the same machine gives the same bundle, whatever --workers is.
Needs foretune[train].
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "--db",
        metavar="FOLDER",
        required=True,
        help="databases, such as /opt/rocm/share/miopen/db",
    )
    parser.add_argument(
        "--arch", required=True, help="such as gfx942; its counts of units serve one model"
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help="where the bundle goes (default: a folder named as the arch)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=0,
        metavar="N",
        help="processes (default: one for each processor)",
    )
    parser.add_argument(
        "--share",
        type=float,
        default=1.0,
        help="share of the shapes to use, for trials (default %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """Train, print how good it is, and return the exit code."""
    if not 0 < options.share <= 1:
        raise InputError(f"expected above 0 and at most 1, got {options.share}", "--share")
    if options.workers < 0:
        raise InputError(f"expected at least 0, got {options.workers}", "--workers")
    with train_extra("train"), progress() as show:
        from foretune.miopen.names import parse_arch
        from foretune.miopen.training import train_miopen

        report = train_miopen(
            options.db,
            options.arch,
            options.out or parse_arch(options.arch),
            workers=options.workers,
            share=options.share,
            on_progress=show,
        )
    print(to_json(report.to_dict()) if options.json else "\n".join(_lines(report)))
    return 0


def _lines(report: TrainingReport) -> Iterator[str]:
    yield (
        f"{report.folder}: {report.arch}, {format_bytes(report.bundle_bytes)}, "
        f"trained in {report.seconds:.0f} s"
    )
    yield "records: " + ", ".join(f"{count} {part}" for part, count in report.records.items())
    for reason, count in report.left_out.items():
        yield f"left out: {count} x {reason}"
    yield ""
    yield "shapes that training never saw:"
    rows = []
    for device, scores in report.metrics["solver_ranking"].items():
        for group, score in scores["unseen (calibrate and test parts)"].items():
            if score["problems"]:
                rows.append(
                    [
                        device,
                        group,
                        f"{score['problems']}",
                        f"{score['top1']:.1%}",
                        f"{score['slowdown']:.3f}",
                        f"{score['above_2x']:.2%}",
                        f"{score['not_listed']:.2%}",
                    ]
                )
    headers = ["device", "shapes", "problems", "top-1", "slowdown", "above 2x", "not listed"]
    yield format_table(headers, rows, headers[2:]).rstrip("\n")
