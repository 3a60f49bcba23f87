"""Show what a find-db or a perf-db holds, and what looks wrong in it; or merge several into one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from foretune.cli.table import format_table, issue_lines, printable
from foretune.errors import InputError
from foretune.miopen.inspect import DatabaseSummary, describe_database
from foretune.miopen.merge import MergeReport, merge_databases

EXAMPLES = """\
examples:
  foretune db /opt/rocm/share/miopen/db/gfx942130.HIP.fdb.txt
  foretune db ~/.config/miopen/gfx90a68.HIP.3_4_0_.ufdb.txt --strict
  foretune db gfx906_60.db.bz2 --json
  foretune db merge node*/gfx942130.HIP.3_3_0_.ufdb.txt -o all/gfx942130.HIP.3_3_0_.ufdb.txt

"merge" writes every problem and every solver of the databases into one. Where they differ, the
smallest time above zero is kept; of tuning parameters, those that were measured faster in the
find-db beside their file, else the first by text. The order of the files doesn't matter. OUT may be
one of them; it is replaced in one step.

Find-dbs (current and legacy) and perf-dbs (text and SQLite) are read, plain, .bz2, .xz or .gz.
A line that can't be read costs itself and is shown at the end.

exit codes: 0 the database was read, or written; 2 it can't be used, none of its lines can, or, with
--strict, one line can't
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.usage = (
        "foretune db FILE [--strict] [--json]\n"
        "       foretune db merge FILE ... -o OUT [--strict] [--json]"
    )
    parser.add_argument(
        "paths", metavar="FILE", nargs="+", help='a database; after the word "merge", several'
    )
    parser.add_argument("-o", "--out", metavar="OUT", help="where the merged database is written")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--strict", action="store_true", help="stop at the first malformed line")


def run(options: argparse.Namespace) -> int:
    """Describe a database or merge several, and return the exit code."""
    first, *others = options.paths
    if first == "merge" and (others or options.out or not Path(first).exists()):
        return _merge(others, options)
    if others:
        raise InputError(f'expected one database, or "merge" before them; got {len(others) + 1}')
    if options.out:
        raise InputError('only "foretune db merge" writes a database', "-o")
    examples = 10 if options.json else 3
    summary = describe_database(first, strict=options.strict, examples=examples)
    if options.json:
        print(json.dumps(summary.to_dict()))
    else:
        print("\n".join(_lines(summary)))
    return 2 if summary.issues and not summary.problems else 0


def _merge(paths: Sequence[str], options: argparse.Namespace) -> int:
    if not paths:
        raise InputError("name the databases to merge", "merge")
    if not options.out:
        raise InputError("say where the merged database is to be written (-o OUT)", "merge")
    report = merge_databases(paths, options.out, strict=options.strict)
    if options.json:
        print(json.dumps(report.to_dict()))
    else:
        print("\n".join(_merge_lines(report)))
    return 0


def _merge_lines(report: MergeReport) -> Iterator[str]:
    yield (
        f"{report.out}: {report.kind} of {report.files} files, {report.problems} problems, "
        f"{report.items} entries"
    )
    if report.conflicts:
        undecided = (
            f", {report.undecided} of them not decided by a time" if report.undecided else ""
        )
        yield f"{report.conflicts} entries differed between the files{undecided}"
    yield from issue_lines(report.issues)


def _lines(summary: DatabaseSummary) -> Iterator[str]:
    legacy = f", {summary.legacy_items} of them legacy" if summary.legacy_items else ""
    yield f"{summary.path}: {summary.kind}, {summary.storage}"
    yield (
        f"{summary.lines} lines, {summary.problems} problems ({summary.grouped} grouped), "
        f"{summary.items} items{legacy}"
    )
    listed = {str(number): count for number, count in summary.items_per_problem.items()}
    for title, counts in (
        ("direction", summary.by_direction),
        ("type", summary.by_type),
        ("layout", summary.by_layout),
        ("dimensions", summary.by_dimensions),
        ("solvers of a problem", listed),
    ):
        yield from _counted(title, "problems", counts, summary.problems)
    rows = [
        [solver, f"{count}", f"{summary.winners.get(solver, 0)}"]
        for solver, count in summary.by_solver.items()
    ]
    headers = ["solver", "items", "wins"]
    if summary.kind != "find-db":
        headers, rows = headers[:2], [row[:2] for row in rows]
    yield ""
    yield format_table(headers, rows, {"items", "wins"}).rstrip("\n")
    if summary.suspicious_counts:
        yield ""
        yield "suspicious entries (the first of each kind):"
        for reason, count in summary.suspicious_counts.items():
            yield f"  {count} x {reason}"
            for entry in summary.suspicious:
                if entry.reason.endswith(reason):
                    yield f"    line {entry.line}: {printable(entry.key)}: {entry.reason}"
    if summary.issues:
        yield ""
        yield from issue_lines(summary.issues)


def _counted(title: str, what: str, counts: Mapping[str, int], total: int) -> Iterator[str]:
    if counts:
        rows = [
            [printable(name), f"{count}", f"{count / total:.1%}"] for name, count in counts.items()
        ]
        yield ""
        yield format_table([title, what, "share"], rows, {what, "share"}).rstrip("\n")
