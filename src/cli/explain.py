"""Show what a program would compute a convolution with on a device, who says so, and why.

It decides as a program does: what is known or sure is answered at once; else candidates are
measured, unless --mode FAST forbids it, and kept for the programs that come after.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from foretune.cli.json_text import to_json
from foretune.cli.problems import name_of, parse_problems
from foretune.cli.table import format_table, printable
from foretune.predictor.candidates import DEFAULT_RISK
from foretune.predictor.decision import Considered, Decision
from foretune.predictor.find_mode import DEFAULT_MODE, FindMode
from foretune.predictor.select import DEFAULT_BUDGET_MS, Selector

EXAMPLES = """\
examples:
  foretune explain --device cpu 64-28-28-3x3-64-28-28-2-1x1-1x1-1x1-0-NCHW-FP32-F
  as it would be without measuring:
    foretune explain --device cuda --mode FAST \\
        "MIOpenDriver convfp16 -n 32 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 1"

With --json each line is
  {"problem", "device", "solver", "config", "rung", "reason", "considered": [{"solver", "config",
   "predicted_ms", "measured_ms", "note"}, ...], "notes": [...]}
where rung is who answered: "user database", "system database", "model", "measured top", "find" or
"fallback".

exit codes: 0 every problem has an answer; 2 some input can't be used
"""

_TOP = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    modes = ", ".join(mode.name for mode in FindMode)
    parser.add_argument("problems", nargs="+", metavar="PROBLEM", help="key, driver line or text")
    parser.add_argument(
        "--device", default="", help="cpu, cuda, hip, cuda:1 (default: the first GPU, else cpu)"
    )
    parser.add_argument(
        "--mode", help=f"{modes} (default: $FORETUNE_FIND_MODE, else {DEFAULT_MODE.name})"
    )
    parser.add_argument(
        "--budget",
        type=float,
        metavar="MS",
        help=f"milliseconds for measuring a problem (default {DEFAULT_BUDGET_MS:.0f})",
    )
    parser.add_argument(
        "--workspace-limit", type=int, metavar="BYTES", help="leave out what needs more"
    )
    parser.add_argument(
        "--deterministic", action="store_true", help="leave out what adds atomically"
    )
    parser.add_argument(
        "--risk",
        type=float,
        default=DEFAULT_RISK,
        help="share of unmeasured picks that may be slower than 1.10 times the best "
        "(default %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(options: argparse.Namespace) -> int:
    """Decide, print, and return the exit code."""
    problems = [problem for text in options.problems for problem in parse_problems(text)]
    selector = Selector(options.device)
    try:
        for problem in problems:
            decision = selector.explain(
                problem,
                mode=options.mode,
                budget_ms=options.budget,
                workspace_limit=options.workspace_limit,
                deterministic=options.deterministic,
                risk=options.risk,
            )
            if options.json:
                print(to_json(_record(decision, selector)), flush=True)
            else:
                print("\n".join(_lines(decision, selector)), flush=True)
    finally:
        selector.close()
    return 0


def _record(decision: Decision, selector: Selector) -> dict[str, Any]:
    return {
        **decision.to_dict(),
        "problem": name_of(decision.problem),
        "device": selector.properties.name,
        "notes": list(selector.notes()),
    }


def _lines(decision: Decision, selector: Selector) -> Iterator[str]:
    yield f"{name_of(decision.problem)} on {selector.properties.name}"
    yield f"answered by: {decision.rung} ({printable(decision.reason)})"
    headers = ("", "solver", "predicted ms", "measured ms", "config")
    rows: list[tuple[str, ...]] = []
    chosen = (decision.solver, decision.config)
    told = list(decision.considered)
    if chosen not in {(one.solver, one.config) for one in told}:
        told.insert(0, Considered(*chosen))
    for one in told[:_TOP]:
        is_chosen = (one.solver, one.config) == chosen
        rows.append(
            (
                "*" if is_chosen else "",
                one.solver,
                _milliseconds(one.predicted_ms),
                _milliseconds(one.measured_ms),
                one.config + (f"  ({printable(one.note)})" if one.note else ""),
            )
        )
    yield format_table(headers, rows, right={"predicted ms", "measured ms"}).rstrip("\n")
    if len(told) > _TOP:
        yield f"and {len(told) - _TOP} more (--json shows all)"
    yield from map(printable, selector.notes())


def _milliseconds(time_ms: float | None) -> str:
    return "" if time_ms is None else f"{time_ms:.4g}"
