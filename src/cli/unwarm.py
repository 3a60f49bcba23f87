"""Take out of MIOpen's user databases what `foretune warm` wrote.

Only entries that are still as foretune wrote them go; what MIOpen or you measured since stays.
"""

from __future__ import annotations

import argparse

from foretune.cli.json_text import to_json
from foretune.cli.table import format_table
from foretune.cli.warm import database_folder, say_who
from foretune.miopen.lock import DEFAULT_TIMEOUT
from foretune.miopen.warm import unwarm

EXAMPLES = """\
examples:
  foretune unwarm
  foretune unwarm --out db --dry-run

exit codes: 0 all was done; 2 the folder or a file in it can't be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help="folder of the databases (default: where MIOpen keeps them, MIOPEN_USER_DB_PATH or "
        "~/.config/miopen)",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be taken out")
    parser.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_TIMEOUT,
        metavar="SECONDS",
        help="how long to wait for a process that holds a database (default %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """Unwarm, and return the exit code."""
    folder = database_folder(options.out)
    removals = unwarm(folder, dry_run=options.dry_run, timeout=options.timeout, waiting=say_who)
    if options.json:
        databases = [
            {"path": str(found.path), "removed": found.removed, "changed": found.changed}
            for found in removals
        ]
        print(to_json({"folder": folder, "dry_run": options.dry_run, "databases": databases}))
    elif removals:
        rows = [[str(r.path), f"{r.removed}", f"{r.changed}"] for r in removals]
        removed = "would go" if options.dry_run else "taken out"
        headers = ["database", removed, "others by now, which stay"]
        print(format_table(headers, rows, headers[1:]), end="")
    else:
        print(f"foretune wrote nothing into {folder}")
    return 0
