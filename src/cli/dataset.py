"""Make one tidy Parquet table of all find-dbs in a folder, with the configs of the perf-dbs."""

from __future__ import annotations

import argparse
from pathlib import Path

from foretune.cli.extras import train_extra
from foretune.cli.table import format_table, issue_lines
from foretune.miopen.archive import replace_file

EXAMPLES = """\
examples:
  foretune dataset /opt/rocm/share/miopen/db --out all.parquet
  foretune dataset /opt/rocm/share/miopen/db --arch gfx90a --out gfx90a.parquet --strict

A row is one solver that a database lists for a problem. At most four are listed: censored_ms says
what an unlisted one is slower than, if it applies at all. Needs foretune[train].

exit codes: 0 the table is written; 2 it is not, or, with --strict, one line can't be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("folder", metavar="FOLDER", help="such as /opt/rocm/share/miopen/db")
    parser.add_argument("--out", metavar="FILE.parquet", required=True, help="the table")
    parser.add_argument("--arch", default="", help="only databases of this arch")
    parser.add_argument("--strict", action="store_true", help="stop at the first unusable line")


def run(options: argparse.Namespace) -> int:
    """Write the table, print what is in it, and return the exit code."""
    with train_extra("dataset"):
        from foretune.miopen.dataset import read_table

        table, report = read_table(options.folder, options.arch, options.strict)
        with replace_file(Path(options.out)) as temporary:
            table.to_parquet(temporary, index=False)
    rows = []
    for (arch, units), part in table.groupby(["arch", "compute_units"]):
        rows.append(
            [
                str(arch),
                f"{units}",
                f"{(part['rank'] == 0).sum()}",
                f"{len(part)}",
                f"{part['config'].notna().sum()}",
                f"{part['solver'].nunique()}",
            ]
        )
    headers = ["arch", "units", "problems", "rows", "with config", "solvers"]
    print(format_table(headers, rows, headers[1:]), end="")
    print(
        f"{options.out}: {report.problems} problems, {report.items} rows of "
        f"{len(report.files)} find-dbs"
    )
    for line in issue_lines(report.issues):
        print(line)
    return 0
