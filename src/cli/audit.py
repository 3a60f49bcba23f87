"""Find the entries of a find-db that the model and simple physics say are wrong."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from foretune.cli.json_text import to_json
from foretune.cli.progress import progress
from foretune.cli.table import format_table, issue_lines, printable
from foretune.errors import InputError
from foretune.miopen.archive import write_lines
from foretune.miopen.audit import REASONS, AuditReport, Finding, audit_find_db
from foretune.miopen.audit_script import remeasure_script

EXAMPLES = """\
examples:
  foretune audit /opt/rocm/share/miopen/db/gfx942130.HIP.fdb.txt
  foretune audit ~/.config/miopen/gfx90a68.HIP.3_4_0_.ufdb.txt --script again.sh
  foretune audit mine.txt --arch gfx942 --cu 304 --miopen 3.6 --json

what is looked for:
{reasons}

"suspected better" is the model's pick where it is another solver. --script writes the MIOpenDriver
commands that measure the suspected problems again; run it on the device itself.

exit codes: 0 the database was audited, whatever was found; 2 it can't be used
""".format(reasons="\n".join(f"  {name:9} {text}" for name, text in REASONS.items()))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("path", metavar="FILE", help="a find-db, AMD's or a user's")
    parser.add_argument("--arch", default="", help="such as gfx942; default: what the name says")
    parser.add_argument(
        "--cu", type=int, metavar="N", help="compute units; default: what the name says"
    )
    parser.add_argument(
        "--miopen",
        metavar="VERSION",
        default="",
        help="release that is to read it, such as 3.6; default: what a user database's name says, "
        "else any, and then no solver is called retired",
    )
    parser.add_argument(
        "--reason",
        action="append",
        choices=tuple(REASONS),
        metavar="NAME",
        help="only this kind of finding; may be repeated",
    )
    parser.add_argument(
        "--top", type=int, default=5, metavar="N", help="findings to show of each kind (default 5)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, with every finding")
    parser.add_argument(
        "--script", metavar="OUT", help="write a shell script that measures the problems again"
    )
    parser.add_argument(
        "--models", metavar="FOLDER", help="models, a folder for each arch (default: the shipped)"
    )


def run(options: argparse.Namespace) -> int:
    """Audit a database, and return the exit code."""
    if options.cu is not None and not 1 <= options.cu <= 4095:
        raise InputError(f"expected 1 to 4095, got {options.cu}", "--cu")
    if options.top < 0:
        raise InputError(f"expected 0 or more, got {options.top}", "--top")
    with progress() as show:
        report = audit_find_db(
            options.path,
            options.arch,
            options.cu,
            miopen=options.miopen,
            models=options.models,
            on_progress=show,
        ).only(options.reason or tuple(REASONS))
    if options.script:
        write_lines(options.script, remeasure_script(report.path, report.findings).splitlines())
        script = Path(options.script)
        script.chmod(script.stat().st_mode | 0o111)
    if options.json:
        print(to_json(report.to_dict()))
    else:
        print("\n".join(_lines(report, options.top)))
        if options.script:
            keys = {finding.key for finding in report.findings}
            print(f"\n{options.script}: measures {len(keys)} problems again")
    return 2 if report.issues and not report.problems else 0


def _lines(report: AuditReport, top: int) -> Iterator[str]:
    release = "" if report.miopen == "any" else f", for MIOpen {report.miopen}"
    yield f"{report.path}: {report.arch} with {report.compute_units} compute units{release}"
    total = len(report.findings)
    yield f"{report.problems} problems, {report.items} entries, {total} findings"
    for text in report.not_checked:
        yield f"not checked: {text}"
    for reason, count in report.counts.items():
        found = [finding for finding in report.findings if finding.reason == reason]
        yield ""
        yield f"{count} x {reason}: {REASONS[reason]}"
        if top:
            yield format_table(
                ["line", "problem", "solver", "why", "suspected better", "ms"],
                [_cells(finding) for finding in found[:top]],
                {"line", "ms"},
            ).rstrip("\n")
    if report.issues:
        yield ""
        yield from issue_lines(report.issues)


def _cells(finding: Finding) -> list[str]:
    return [
        f"{finding.line}",
        printable(finding.key),
        printable(finding.solver),
        printable(finding.detail),
        finding.better or "",
        "" if finding.better_ms is None else f"{finding.better_ms:.4g}",
    ]
