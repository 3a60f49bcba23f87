"""Score the model of foretune's own kernels, and simple pickers, on datasets of `foretune tune`."""

from __future__ import annotations

import argparse

from foretune.cli.extras import train_extra
from foretune.cli.json_text import to_json
from foretune.cli.progress import progress
from foretune.cli.report_options import add_report_argument, prepare_report
from foretune.cli.table import format_table, number_headers

EXAMPLES = """\
examples:
  foretune compare kernels --data data/kernels/sm_90/conv.parquet --arch sm_90
  a model of your own:
    foretune compare kernels --data mine.parquet --arch cpu --models models --json
  with figures, in one HTML file that needs no network:
    foretune compare kernels --data data/kernels/sm_90/conv.parquet --arch sm_90 --report r.html

Problems that the model was trained on are answered by models that were trained without their
shapes; the simple pickers learn from the other shapes of the data. The first choice that was
measured counts as the pick, and the best that was measured as the best. Needs foretune[train], and
--report foretune[report].
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "--data",
        action="append",
        required=True,
        metavar="FILE.parquet",
        help="dataset of foretune tune; may be given several times",
    )
    parser.add_argument("--arch", required=True, help="such as sm_90, gfx942 or cpu")
    parser.add_argument(
        "--risk", type=float, default=0.05, help="stated risk of accepting (default %(default)s)"
    )
    parser.add_argument(
        "--models", metavar="FOLDER", help="models, a folder for each arch (default: the shipped)"
    )
    parser.add_argument("--operation", default="conv", help="whose kernels (default %(default)s)")
    add_report_argument(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """Compare, print the tables, and return the exit code."""
    write_report = prepare_report(options.report)
    with train_extra("compare"), progress() as show:
        from foretune.predictor.kernels.comparison import compare_kernels

        report = compare_kernels(
            options.data,
            options.arch,
            operation=options.operation,
            risk=options.risk,
            models=options.models,
            on_progress=show,
        )
        if write_report:
            from foretune.predictor.kernels.comparison_report import report_of

            write_report(report_of(report))
    if options.json:
        print(to_json(report.to_dict()))
        return 0
    for title, headers, rows in report.tables():
        print(f"{title}:\n{format_table(headers, rows, number_headers(headers, rows))}")
    return 0
