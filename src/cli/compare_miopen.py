"""Score the models on a find-db against what was tuned, AMD's nets and simple pickers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from foretune.cli.extras import train_extra
from foretune.cli.json_text import to_json
from foretune.cli.progress import progress
from foretune.cli.report_options import add_report_argument, prepare_report
from foretune.cli.table import format_table, number_headers
from foretune.errors import InputError

if TYPE_CHECKING:
    from foretune.miopen.networks import Networks

PARTS = ("test", "calibrate", "unseen", "all")

EXAMPLES = """\
examples:
  foretune compare miopen --arch gfx942 --find-db gfx942130.HIP.fdb.txt.bz2
  with the nets that AMD ships and the pickers that learn from the databases in a folder:
    foretune compare miopen --arch gfx90a --cu 110 --find-db gfx90a6e.HIP.fdb.txt.bz2 \\
        --db /opt/rocm/share/miopen/db --part unseen --miopen 3.6 --json
  with figures, in one HTML file that needs no network:
    foretune compare miopen --arch gfx942 --find-db gfx942130.HIP.fdb.txt.bz2 \\
        --db /opt/rocm/share/miopen/db --report report.html

Only shapes that training never saw are scored, unless --part all is asked for: "test" shapes,
those of "calibrate", which set the thresholds of acceptance, or both ("unseen").
Tuning parameters are scored on the perf-db of the same device in --db, never on shapes that
training saw.
Slowdown is a geometric mean over the picks that the database lists. Needs foretune[train], and
--report foretune[report].
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--find-db", metavar="FILE", required=True, help="what was tuned")
    parser.add_argument("--arch", required=True, help="arch that it was tuned on, such as gfx942")
    parser.add_argument(
        "--cu", type=int, metavar="N", help="compute units; default: what the file's name says"
    )
    parser.add_argument(
        "--db",
        metavar="FOLDER",
        help="databases that the simple pickers learn from, with the perf-db that configs are "
        "scored on, and AMD's nets (*.tn.model, *.ktn.model)",
    )
    parser.add_argument(
        "--part", choices=PARTS, default="test", help="shapes to score (default %(default)s)"
    )
    parser.add_argument(
        "--miopen",
        metavar="VERSION",
        default="any",
        help="only solvers that this release can run, such as 3.6 (default %(default)s)",
    )
    parser.add_argument(
        "--risk", type=float, default=0.05, help="stated risk of accepting (default %(default)s)"
    )
    parser.add_argument(
        "--models", metavar="FOLDER", help="models, a folder for each arch (default: the shipped)"
    )
    parser.add_argument(
        "--networks",
        metavar="FOLDER",
        help="files of driver lines (*.txt), one for each network of the report, each taken in "
        "FP32, FP16 and BF16 (default: the suites resnet50, mobilenet and unet)",
    )
    add_report_argument(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """Compare, print the tables, and return the exit code."""
    if options.cu is not None and not 1 <= options.cu <= 4095:
        raise InputError(f"expected 1 to 4095, got {options.cu}", "--cu")
    if options.networks and not options.report:
        raise InputError("only a report shows networks; give --report FILE.html", "--networks")
    write_report = prepare_report(options.report)
    with train_extra("compare"), progress() as show:
        from foretune.miopen.comparison import compare_miopen

        comparison = compare_miopen(
            options.find_db,
            options.arch,
            options.cu,
            db=options.db,
            part=options.part,
            miopen=options.miopen,
            risk=options.risk,
            models=options.models,
            networks=_networks(options) if write_report else None,
            on_progress=show,
        )
        if write_report:
            from foretune.miopen.comparison_report import report_of

            write_report(report_of(comparison, options.networks or "the suites"))
    report = comparison.report
    if options.json:
        print(to_json(report.to_dict()))
        return 0
    for title, headers, rows in report.tables():
        print(f"{title}:\n{format_table(headers, rows, number_headers(headers, rows))}")
    return 0


def _networks(options: argparse.Namespace) -> Networks:
    from foretune.miopen.networks import in_types, read_networks, suite_networks

    return in_types(read_networks(options.networks)) if options.networks else suite_networks()
