"""List the convolutions that a program asks MIOpen for, as driver lines, each once.

The program is a PyTorch model (model.py:build, where build gives the model), an ONNX file, a log
that was written with MIOPEN_ENABLE_LOGGING_CMD=1, or a file of find-db keys or driver lines.
A model needs no GPU and no weights: nothing is computed.
"""

from __future__ import annotations

import argparse
import json
import sys

from foretune.cli.model_options import add_model_arguments, model_options
from foretune.cli.table import printable
from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.driver import format_driver_line
from foretune.miopen.keys import format_find_key
from foretune.miopen.sources import read_source

EXAMPLES = """\
examples:
  a PyTorch model at two sizes, for inference in half precision:
    foretune shapes model.py:build --input 1x3x224x224 --input 8x3x256x256 --dtype fp16
  its training under autocast:
    foretune shapes model.py:build --input 64x3x224x224 --backward --autocast
  what to expect of them:
    foretune shapes model.py:build --input 1x3x224x224 | foretune predict --arch gfx942 --from -
  an ONNX file that leaves the batch open:
    foretune shapes model.onnx --input image=8x3x224x224
  what a program ran:
    MIOPEN_ENABLE_LOGGING_CMD=1 python train.py 2> train.log
    foretune shapes train.log

A comment before a line says how often it is asked for, if that is more than once. With --json each
line is {"problem": find-db key, "count", "driver": driver line}.

exit codes: 0 all was read; 2 some input can't be used (all other is listed nevertheless)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "source", metavar="SOURCE", help="model.py:build, model.onnx, or a file; - is stdin"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    add_model_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """List, and return the exit code."""
    source = read_source(options.source, model_options(options, [options.source]))
    for problem, count in source.counts.items():
        if options.json:
            record = {"problem": format_find_key(problem), "count": count}
            print(json.dumps(record | {"driver": _driver_line(problem)}))
        else:
            if count > 1:
                print(f"# {count} times:")
            print(_driver_line(problem) or format_find_key(problem))
    calls = sum(source.counts.values())
    print(
        f"foretune: note: convolutions: {len(source.counts)}, calls of them: {calls}",
        file=sys.stderr,
    )
    for note in source.notes:
        print(f"foretune: note: {printable(note)}", file=sys.stderr)
    for line in source.errors:
        where = f"line {line.number}: " if line.number else ""
        print(f"foretune: error: {where}{printable(str(line.error))}", file=sys.stderr)
    return 2 if source.errors else 0


def _driver_line(problem: ConvProblem) -> str | None:
    """Driver line, if the driver has words for the problem."""
    try:
        return format_driver_line(problem)
    except InputError:
        return None
