"""Compile foretune's own kernels for an AMD GPU, which needn't be here, and tell what they take.

Registers, spills, LDS and occupancy are read from the code objects and written as Parquet, with a
datasheet beside it: to see whether configs fit a GPU before anybody has it, and as features for
models.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foretune.cli.extras import tune_extra
from foretune.cli.problems import parse_problems
from foretune.cli.progress import progress
from foretune.cli.table import format_table
from foretune.errors import InputError
from foretune.kernels.suites import read_suite, suite_names

EXAMPLES = f"""\
examples:
  default configs and a sample of each space, for the layers of ResNet-50:
    foretune facts --arch gfx942 --suite resnet50 --out resnet50-gfx942.parquet
  only default configs, of your own problems (find-db keys, driver lines):
    foretune facts --arch gfx90a --suite problems.txt --configs 0 --out mine.parquet

Compiles with HIPRTC of the installed ROCm if it knows the arch, else with clang 19 or newer
(Debian and Ubuntu: apt-get install clang-19 lld-19). Suites that come with foretune:
{", ".join(suite_names())}; several are joined by commas.
Needs foretune[tune].

exit codes: 0 the file is written; 1 it is, and some kernels can't be compiled; 2 some input can't
be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--arch", required=True, help="gfx908, gfx90a, gfx942")
    parser.add_argument("--suite", required=True, metavar="NAME|FILE", help="problems")
    parser.add_argument("--out", required=True, metavar="FACTS.parquet", help="the file to write")
    parser.add_argument(
        "--configs",
        type=int,
        default=1,
        metavar="N",
        help="configs of each solver and problem, beside the default one (default %(default)s)",
    )
    parser.add_argument("--kernels", type=int, metavar="N", help="kernels at most (default: all)")
    parser.add_argument(
        "--seed", type=int, default=0, help="chooses among configs (default %(default)s)"
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes that compile (default: one a processor)"
    )


def run(options: argparse.Namespace) -> int:
    """Compile, write the file, print a table, and return the exit code."""
    with tune_extra("facts"):
        from foretune.kernels.static_facts import write_facts
    problems = read_suite(options.suite, parse_problems)
    out = Path(options.out)
    if out.suffix != ".parquet":
        raise InputError("expected a name that ends in .parquet", f"--out {out}")
    if not out.parent.is_dir():
        raise InputError("there is no such folder", str(out.parent))
    if options.workers is not None and options.workers < 1:
        raise InputError(f"expected at least 1, got {options.workers}", "--workers")
    with tune_extra("facts"), progress() as show:
        rows = write_facts(
            out,
            problems,
            options.arch,
            configs=options.configs,
            most=options.kernels,
            seed=options.seed,
            workers=options.workers,
            note=options.suite,
            show=show,
        )
    print(_table(rows), end="")
    failed = [row for row in rows if row["reason"]]
    for row in failed:
        print(f"{row['file']} {row['name']} ({row['macros']}): {row['reason'].splitlines()[0]}")
    print(f"{out}: {len(rows)} kernels; {out.with_suffix('.md')} says what the columns are")
    return 1 if failed else 0


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if not row["reason"]:
            groups[f"{row['file']} {row['name']}"].append(row)
    headers = ("kernel", "compiled", "registers", "LDS", "spilling", "waves/SIMD")
    cells = [
        (
            name,
            f"{len(group)}",
            f"{max(row['vector_registers'] for row in group)}",
            f"{max(row['local_bytes'] for row in group)}",
            f"{sum(row['scratch_bytes'] > 0 for row in group)}",
            _least(group),
        )
        for name, group in groups.items()
    ]
    return format_table(headers, cells, right=set(headers[1:])) if cells else ""


def _least(group: Sequence[Mapping[str, Any]]) -> str:
    known = [row["waves_per_simd"] for row in group if row["waves_per_simd"] is not None]
    return f"{min(known):g}" if known else "?"
