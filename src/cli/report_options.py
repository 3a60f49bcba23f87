"""The option of verbs that write a report."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from foretune.cli.extras import report_extra
from foretune.errors import InputError

if TYPE_CHECKING:
    from foretune.predictor.report import ReportData


def add_report_argument(parser: argparse.ArgumentParser) -> None:
    """Declare `--report`."""
    parser.add_argument(
        "--report",
        metavar="FILE.html",
        help="also write an HTML page with figures, tables, and the worst picks with the reason",
    )


def prepare_report(path: str | None) -> Callable[[ReportData], None] | None:
    """Check that a report can be written before the work begins; None if none is wanted.

    Returns
    -------
    callable
        Takes the data of the report and writes it.

    Raises
    ------
    InputError
        If the place of the file isn't there, or the extra `report` is missing.
    """
    if path is None:
        return None
    if not Path(path).parent.is_dir():
        raise InputError("there is no such folder", str(Path(path).parent))
    with report_extra("--report"):
        from foretune.predictor.report import write_report

    return lambda data: write_report(data, path)
