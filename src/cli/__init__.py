"""The `foretune` command. Thin: every verb calls one function of the library.

Verbs are modules of this package, imported when they are asked for, and the parser is argparse:
`foretune predict` has to answer in a fraction of a second, and the usual helpers (typer, rich) take
longer to import than the whole answer (measured in LEARNINGS.md).
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from types import ModuleType
from typing import NoReturn

from foretune import __version__
from foretune.errors import InputError

#: Verb -> what it does, in the order of `foretune --help`.
VERBS = {
    "quickstart": "show in a minute, without a GPU, what foretune does",
    "predict": "tell which solver and config win for convolutions, without a GPU and a search",
    "shapes": "list the convolutions that a model or a program asks MIOpen for",
    "warm": "write predictions into MIOpen's user databases: a program then starts unsearched",
    "unwarm": "take out of the user databases what warm wrote",
    "db": "show what a find-db or a perf-db holds, and what looks wrong in it",
    "audit": "find the entries of a find-db that the model and simple physics say are wrong",
    "dataset": "make one tidy Parquet table of a folder of databases",
    "train": "train models, of MIOpen's kernels or foretune's own, from what was measured",
    "compare": "score the models and simple pickers on what was tuned",
    "devices": "show the devices that kernels can run on here, and why others are absent",
    "explain": "show what computes a convolution on a device, who decided so, and why",
    "find": "measure foretune's own kernels for convolutions on a device, and rank them",
    "facts": "compile foretune's own kernels for an AMD GPU, here or not, and tell what they take",
    "tune": "measure all configs of foretune's own kernels for many problems into a dataset",
}
FAILED, USAGE_ERROR, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141

_DESCRIPTION = "Picks GPU kernels without searching."
_EPILOG = """\
examples:
  foretune predict --arch gfx942 64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F
  foretune help predict

exit codes: 0 all was answered; 1 something went wrong, such as a full disk; 2 some input can't be
used, and stderr says which and why
"""


class _Parser(argparse.ArgumentParser):
    """Tells a wrong command line like any other wrong input, in one line."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Words after `foretune`. Default: those of the process.

    Examples
    --------
    >>> main(["--version"])  # doctest: +ELLIPSIS
    foretune ...
    0
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_output()
    try:
        code, wrong = _run_or_say_why_not(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return BROKEN_PIPE
    except OSError as error:
        _drop_output()
        code, wrong = FAILED, str(error)
    if wrong:
        print(f"foretune: error: {wrong}", file=sys.stderr)
    return code


def _run_or_say_why_not(arguments: list[str]) -> tuple[int, str]:
    try:
        return _run(arguments), ""
    except InputError as error:
        return USAGE_ERROR, str(error)


def _prepare_output() -> None:
    # print() to a closed stream goes to the other one, or fails.
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal that knows fewer letters than a file's name shows their codes.
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    # Else the interpreter fails once more when it flushes at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:3], "--help"]
    verb = arguments[0] if arguments else "--help"
    if verb in ("-h", "--help"):
        print(_general_help(), end="")
        return 0
    if verb == "--version":
        print(f"foretune {__version__}")
        return 0
    if verb not in VERBS:
        raise InputError(f"unknown verb {verb!r}; known are {', '.join(VERBS)}")
    if verb == "predict":
        # It multiplies no matrices, and starting numpy's threads for that is a tenth of its import.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    module = importlib.import_module(f"foretune.cli.{verb}")
    family = next(iter(arguments[1:]), "")
    if family in getattr(module, "FAMILIES", {}):
        module = importlib.import_module(module.FAMILIES[family])
        verb, arguments = f"{verb} {family}", arguments[1:]
    parser = _verb_parser(verb, module)
    if {"-h", "--help"} & set(arguments[1:]):
        print(parser.format_help(), end="")
        return 0
    options, rest = parser.parse_known_intermixed_args(arguments[1:])
    if rest:
        hint = "; put a driver line in quotes" if "MIOpenDriver" in " ".join(arguments) else ""
        parser.error(f"unknown arguments: {' '.join(rest)}{hint}")
    code: int = module.run(options)
    return code


def _verb_parser(verb: str, module: ModuleType) -> _Parser:
    parser = _Parser(
        prog=f"foretune {verb}",
        description=module.__doc__,
        epilog=module.EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    return parser


def _general_help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:{width}}  {summary}" for verb, summary in VERBS.items())
    return (
        "usage: foretune VERB [arguments]\n"
        "       foretune VERB --help\n"
        "       foretune --version\n\n"
        f"{_DESCRIPTION}\n\nverbs:\n{verbs}\n\n{_EPILOG}"
    )
