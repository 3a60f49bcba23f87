"""Tell which solver and which config win for convolutions, without a GPU and without a search.

A problem is a find-db key or a (quoted) MIOpenDriver line. A line whose -F names several
directions gives one answer each, in the order F, B, W.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from foretune.api import DEFAULT_TOP, FAMILIES, Predictor, known_archs
from foretune.cli.gpu import find_gpu
from foretune.cli.table import format_bytes, format_table, printable
from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.driver import parse_problem_line
from foretune.miopen.keys import format_find_key
from foretune.miopen.log import HOW_TO_LOG, ProblemLine, read_log, read_problem_lines
from foretune.miopen.predictor import DEFAULT_RISK
from foretune.predictor.prediction import Prediction

EXAMPLES = """\
examples:
  one problem, as MIOpen's find-db writes it:
    foretune predict --arch gfx942 64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F
  a driver line, all three directions, the best two candidates of each:
    foretune predict --arch gfx90a --cu 110 --top 2 \\
        "MIOpenDriver convfp16 -n 32 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 0"
  every convolution of a program, each once, as one JSON object a line:
    MIOPEN_ENABLE_LOGGING_CMD=1 python train.py 2> train.log
    foretune predict --arch gfx942 --log train.log --unique --json

With --json each line is
  {"problem": find-db key, "arch", "compute_units", "accepted", "risk", "reason", "solutions":
   [{"solver", "config", "predicted_ms", "workspace", "score"}, ...]}
with the best solution first, "count" too with --unique; or {"input", "line", "error"} in the place
of what can't be read ("line" is the number of the line or of the argument, 0 for the whole file).

exit codes: 0 all was answered; 2 some input can't be used (all other is answered nevertheless)
"""

#: Problems of a file that are answered at a time.
_CHUNK = 512


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help="find-db key or driver line")
    parser.add_argument(
        "--from",
        dest="file",
        metavar="FILE",
        help="read problems from a file, one a line; - is standard input; blank lines and lines "
        "that start with # are skipped",
    )
    parser.add_argument(
        "--log",
        metavar="FILE",
        help="read the convolutions of a program's log (MIOPEN_ENABLE_LOGGING_CMD=1); other "
        "lines are skipped; - is standard input",
    )
    parser.add_argument(
        "--arch", help="for example gfx942 or gfx90a:sramecc+:xnack-; default: this machine's GPU"
    )
    parser.add_argument(
        "--cu", type=int, metavar="N", help="compute units; default: the arch's usual count"
    )
    parser.add_argument(
        "--top",
        type=int,
        default=DEFAULT_TOP,
        metavar="N",
        help="solutions of each problem (default %(default)s)",
    )
    parser.add_argument(
        "--risk",
        type=float,
        default=DEFAULT_RISK,
        metavar="SHARE",
        help="share of accepted picks that may be slower than 1.10 times the best "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--family",
        choices=FAMILIES,
        default="miopen",
        help="whose kernels: MIOpen's solvers or foretune's own library (default %(default)s)",
    )
    parser.add_argument(
        "--miopen",
        metavar="VERSION",
        default="any",
        help="only solvers that this MIOpen release can run, such as 3.6 or 3.6+mlir "
        "(default any: every solver that the databases know)",
    )
    parser.add_argument(
        "--models",
        metavar="FOLDER",
        help="models that foretune train made, a folder for each arch (default: the shipped ones)",
    )
    parser.add_argument(
        "--unique", action="store_true", help="answer repeated problems once, with their count"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(options: argparse.Namespace) -> int:
    """Answer, and return the exit code."""
    _check_sources(options)
    arch, units = _device(options)
    predictor = Predictor(
        arch,
        units,
        risk=options.risk,
        family=options.family,
        miopen=options.miopen,
        models=options.models,
    )
    lines: Iterable[ProblemLine] = _lines(options)
    if options.unique:
        lines = list(lines)
        counts = _count(lines)
        lines = _first_of_each(lines)
    else:
        counts = {}
    # Who writes into a pipe waits for each answer; a file is answered faster by the chunk.
    chunk = 1 if "-" in (options.file, options.log) else _CHUNK
    answers = _answer(lines, predictor, options.top, chunk)
    failed = False
    rows: list[tuple[str, ...]] = []
    for line, predictions in answers:
        failed |= line.error is not None
        if options.json:
            for record in _records(line, predictions, counts):
                print(json.dumps(record))
            if chunk == 1:
                sys.stdout.flush()
        else:
            rows += _rows(line, predictions, counts)
    if rows:
        print(_table(rows, bool(counts)), end="")
    return 2 if failed else 0


def _check_sources(options: argparse.Namespace) -> None:
    given = [
        name
        for name, value in (
            ("problems as arguments", options.problems or None),
            ("--from", options.file),
            ("--log", options.log),
        )
        if value is not None
    ]
    if not given:
        raise InputError("no problem is given; name some, or --from FILE, or --log FILE")
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} don't go together; give one of them")
    if options.top < 1:
        raise InputError(f"expected at least 1, got {options.top}", "--top")


def _device(options: argparse.Namespace) -> tuple[str, int | None]:
    if options.arch is not None:
        return options.arch, options.cu
    gpu = find_gpu()
    if gpu is None:
        raise InputError(
            "there is no AMD GPU here, so name the arch that the answer is for, such as "
            f"--arch gfx942; archs with a model are {', '.join(known_archs())}"
        )
    return gpu.arch, options.cu or gpu.compute_units


def _lines(options: argparse.Namespace) -> Iterator[ProblemLine]:
    if options.file is not None:
        yield from read_problem_lines(options.file)
        return
    if options.problems:
        for number, text in enumerate(options.problems, 1):
            try:
                yield ProblemLine(number, text, tuple(parse_problem_line(text)))
            except InputError as error:
                yield ProblemLine(number, text, (), error)
        return
    reader = read_log(options.log)
    found = False
    for line in reader:
        found = True
        yield line
    for issue in reader.issues:
        yield ProblemLine(issue.line, "", (), InputError(issue.reason, issue.where))
    if not found:
        print(f"foretune: note: {HOW_TO_LOG}", file=sys.stderr)
    if reader.other_operations:
        names = ", ".join(f"{n} {name}" for name, n in reader.other_operations.most_common())
        print(f"foretune: note: operations that are no convolution: {names}", file=sys.stderr)


def _count(lines: Iterable[ProblemLine]) -> dict[ConvProblem, int]:
    counts: dict[ConvProblem, int] = {}
    for line in lines:
        for problem in line.problems:
            counts[problem] = counts.get(problem, 0) + 1
    return counts


def _first_of_each(lines: Iterable[ProblemLine]) -> Iterator[ProblemLine]:
    seen: set[ConvProblem] = set()
    for line in lines:
        new = tuple(problem for problem in dict.fromkeys(line.problems) if problem not in seen)
        seen.update(new)
        if new or line.error:
            yield ProblemLine(line.number, line.text, new, line.error)


def _answer(
    lines: Iterable[ProblemLine], predictor: Predictor, top: int, chunk: int
) -> Iterator[tuple[ProblemLine, list[Prediction]]]:
    """Each line with the answers to its problems."""
    iterator = iter(lines)
    while some := list(islice(iterator, chunk)):
        problems = [problem for line in some for problem in line.problems]
        predictions = iter(predictor.predict_many(problems, top=top))
        for line in some:
            yield line, list(islice(predictions, len(line.problems)))


def _records(
    line: ProblemLine, predictions: list[Prediction], counts: dict[ConvProblem, int]
) -> Iterator[dict[str, Any]]:
    if line.error:
        yield {"input": line.text, "line": line.number, "error": str(line.error)}
    for prediction in predictions:
        record: dict[str, Any] = {
            "problem": format_find_key(prediction.problem),
            "arch": prediction.arch,
            "compute_units": prediction.compute_units,
            "accepted": prediction.accepted,
            "risk": prediction.risk,
            "reason": prediction.reason,
            "solutions": [solution.to_dict() for solution in prediction.solutions],
        }
        if counts:
            record["count"] = counts[prediction.problem]
        yield record


def _rows(
    line: ProblemLine, predictions: list[Prediction], counts: dict[ConvProblem, int]
) -> Iterator[tuple[str, ...]]:
    """Rows of the table; one of a single cell is a remark on the row above it."""
    if line.error:
        yield printable(line.text) or "(file)", "error"
        number = f"line {line.number}: " if line.number else ""
        yield (f"{number}{printable(str(line.error))}",)
    for prediction in predictions:
        count = (f"{counts[prediction.problem]}",) if counts else ()
        first: tuple[str, ...] = (
            format_find_key(prediction.problem),
            "yes" if prediction.accepted else "no",
            *count,
        )
        for solution in prediction.solutions:
            workspace = solution.workspace
            yield (
                *first,
                solution.solver,
                f"{solution.predicted_ms:.4g}",
                "?" if workspace is None else format_bytes(workspace),
                f"{solution.score:.2f}",
                solution.config or "",
            )
            first = ("", "") + ("",) * len(count)
        if not prediction.solutions:
            yield first
        if not prediction.accepted:
            yield (f"not accepted: {prediction.reason}",)


def _table(rows: list[tuple[str, ...]], with_counts: bool) -> str:
    count = ("count",) if with_counts else ()
    headers = ("problem", "accepted", *count, "solver", "ms", "workspace", "score", "config")
    return format_table(headers, rows, right={"count", "ms", "workspace", "score"})
