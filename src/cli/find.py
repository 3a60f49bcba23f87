"""Measure foretune's own kernels for convolutions on a device, and rank them by time.

A problem is a find-db key, a (quoted) MIOpenDriver line, or foretune's own text ("conv
direction=F ..."). Answers are kept; asked again, the same problem is answered from there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from foretune.cli.json_text import to_json
from foretune.cli.problems import name_of, parse_problems
from foretune.cli.progress import progress
from foretune.cli.table import format_bytes, format_table
from foretune.errors import InputError
from foretune.kernels.find import DEFAULT_BUDGET, Found, find
from foretune.kernels.store import Store

EXAMPLES = """\
examples:
  on this machine's processor:
    foretune find --device cpu 64-28-28-3x3-64-28-28-2-1x1-1x1-1x1-0-NCHW-FP32-F
  a driver line on an NVIDIA GPU, for half a minute, anew:
    foretune find --device cuda --budget 30 --enforce \\
        "MIOpenDriver convfp16 -n 32 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 1"

With --json each line is
  {"problem", "device", "seconds", "is_stored", "solutions": [{"solver", "config", "time_ms",
   "low_ms", "high_ms", "samples", "workspace", "is_tied", "adds_atomically"}, ...],
   "left_out": [{"candidate", "reason"}, ...]}
with the fastest first; low_ms and high_ms are quartiles, is_tied says that it can't be told from
the first.

exit codes: 0 every problem has a solution; 1 some has none; 2 some input can't be used
"""

_TOP = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("problems", nargs="+", metavar="PROBLEM", help="key, driver line or text")
    parser.add_argument(
        "--device", default="", help="cpu, cuda, hip, cuda:1 (default: the first GPU, else cpu)"
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=DEFAULT_BUDGET,
        metavar="S",
        help="seconds for each problem (default %(default)s)",
    )
    parser.add_argument(
        "--workspace-limit", type=int, metavar="BYTES", help="leave out what needs more"
    )
    parser.add_argument(
        "--deterministic", action="store_true", help="leave out what adds atomically"
    )
    parser.add_argument(
        "--enforce", action="store_true", help="measure, even if the answer is stored"
    )
    parser.add_argument(
        "--top", type=int, default=_TOP, metavar="N", help="solutions to show (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(options: argparse.Namespace) -> int:
    """Measure, print, and return the exit code."""
    if options.top < 1:
        raise InputError(f"expected at least 1, got {options.top}", "--top")
    if options.workspace_limit is not None and options.workspace_limit < 0:
        raise InputError(f"expected bytes, got {options.workspace_limit}", "--workspace-limit")
    problems = [problem for text in options.problems for problem in parse_problems(text)]
    store = Store()
    code = 0
    for problem in problems:
        with progress() as show:
            found = find(
                problem,
                options.device,
                budget=options.budget,
                workspace_limit=options.workspace_limit,
                deterministic=options.deterministic,
                enforce=options.enforce,
                store=store,
                show=show,
            )
        if not found.solutions:
            code = 1
        if options.json:
            print(to_json(_record(found, options.top)), flush=True)
        else:
            print(_table(found, options.top), end="", flush=True)
    if store.note:
        print(f"foretune: note: {store.note}", file=sys.stderr)
    return code


def _record(found: Found, top: int) -> dict[str, Any]:
    return {
        **found.to_dict(),
        "problem": name_of(found.problem),
        "solutions": [asdict(solution) for solution in found.solutions[:top]],
    }


def _table(found: Found, top: int) -> str:
    rows: list[tuple[str, ...]] = []
    for rank, solution in enumerate(found.solutions[:top], 1):
        rows.append(
            (
                f"{rank}",
                solution.solver,
                f"{solution.time_ms:.4g}",
                f"{solution.low_ms:.4g}-{solution.high_ms:.4g}",
                f"{found.problem.flops / solution.time_ms / 1e6:.4g}",
                format_bytes(solution.workspace),
                solution.config + ("  (tied with the first)" if solution.is_tied else ""),
            )
        )
    headers = ("#", "solver", "ms", "quartiles", "GFLOP/s", "workspace", "config")
    origin = "stored" if found.is_stored else f"measured in {found.seconds:.1f} s"
    title = f"{name_of(found.problem)} on {found.device}, {origin}\n"
    table = format_table(headers, rows, right={"#", "ms", "GFLOP/s", "workspace"})
    return title + table + "".join(f"{line}\n" for line in _remarks(found, top))


def _remarks(found: Found, top: int) -> Iterator[str]:
    if not found.solutions:
        yield "no solution"
    if len(found.solutions) > top:
        yield f"and {len(found.solutions) - top} slower ones (--top)"
    if found.left_out:
        yield "left out:"
    for left in found.left_out:
        yield f"  {left.candidate}: {left.reason}"
