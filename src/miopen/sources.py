"""The convolutions of a program, from whatever tells them: a log, a file, a model."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.archive import IssueLog, read_lines
from foretune.miopen.keys import parse_find_key
from foretune.miopen.log import (
    HOW_TO_LOG,
    LogReader,
    ProblemLine,
    issue_line,
    open_source,
    parse_line,
    source_name,
)

_MODEL = re.compile(r"(.+\.py):([A-Za-z_][\w.]*)")
_KEY = re.compile(r"\d+(?:-[\w.]+){9,}")


@dataclass(frozen=True)
class ModelOptions:
    """How a model is run to see its convolutions.

    Parameters
    ----------
    inputs : tuple of str, optional
        Shapes of its input, one text for each run: "1x3x224x224", several tensors as
        "1x3x64x64,1x77x768", named ones as "x=1x3x64x64".
    dtype : str, default ""
        Type of parameters and inputs, such as "fp16", or with ``autocast`` its type; "" for the
        model's own. An ONNX file has its own.
    backward : bool, default False
        Also the gradients.
    channels_last : bool, default False
        Whether model and inputs are in channels-last memory format.
    autocast : bool, default False
        Whether it runs under ``torch.autocast``; in fp16 if there is no ``dtype``.

    Examples
    --------
    >>> ModelOptions(("1x3x224x224",), dtype="fp16").backward
    False
    """

    inputs: tuple[str, ...] = ()
    dtype: str = ""
    backward: bool = False
    channels_last: bool = False
    autocast: bool = False


@dataclass(frozen=True)
class Source:
    """The convolutions of a program.

    Parameters
    ----------
    counts : dict of ConvProblem to int
        How often each is asked for, in the order of first appearance.
    notes : tuple of str, optional
        What a person should know, such as operations that are no convolution.
    errors : tuple of ProblemLine, optional
        Lines that name a convolution and can't be read.

    Examples
    --------
    >>> Source({ConvProblem("F", 1, 8, (9, 9), 8, (3, 3)): 2}).notes
    ()
    """

    counts: dict[ConvProblem, int]
    notes: tuple[str, ...] = ()
    errors: tuple[ProblemLine, ...] = ()


def read_source(source: str | os.PathLike[str], options: ModelOptions | None = None) -> Source:
    r"""Find the convolutions that a program asks for, with how often it does.

    The kind of source is recognised: ``model.py:build`` is a PyTorch model, ``model.onnx`` an ONNX
    file; a file whose first line is a find-db key or a JSON object holds a problem in each line;
    any other is a log.

    Parameters
    ----------
    source : str or path-like
        The model, or a file, plain or compressed; "-" for standard input.
    options : ModelOptions, optional
        How a model is run. A log and a file of problems have none.

    Returns
    -------
    Source
        Problems and counts, what was left out, what could not be read.

    Raises
    ------
    InputError
        If the source can't be read at all, or has no convolution.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "a.log")
    ...     _ = path.write_text("./bin/MIOpenDriver conv -F 1\n" * 3)
    ...     list(read_source(path).counts.values())
    [3]
    """
    text, options = os.fspath(source), options or ModelOptions()
    model = _MODEL.fullmatch(text)
    if model:
        return _read_model(model[1], model[2], options)
    if text.lower().endswith(".onnx"):
        return _read_onnx(text, options)
    if text.lower().endswith(".py"):
        raise InputError(f"name what builds the model too, such as {text}:build", text)
    return _read_file(text)


def takes_model_options(source: str | os.PathLike[str]) -> bool:
    """Whether a source is a model, so that `ModelOptions` say how it is run.

    Examples
    --------
    >>> takes_model_options("net.py:build"), takes_model_options("program.log")
    (True, False)
    """
    text = os.fspath(source)
    return bool(_MODEL.fullmatch(text)) or text.lower().endswith(".onnx")


def _read_model(path: str, name: str, options: ModelOptions) -> Source:
    with _extra("torch", path):
        from foretune.torch.model_file import trace_model_file
    traced = trace_model_file(
        path,
        name,
        options.inputs,
        dtype=options.dtype,
        backward=options.backward,
        channels_last=options.channels_last,
        autocast=options.autocast,
    )
    notes = []
    if traced.native:
        notes.append(f"convolutions that PyTorch computes itself: {_list(traced.native)}")
    if options.channels_last and os.environ.get("PYTORCH_MIOPEN_SUGGEST_NHWC") != "1":
        notes.append(
            "PyTorch hands channels-last tensors to MIOpen as NCHW; if the program runs with "
            "PYTORCH_MIOPEN_SUGGEST_NHWC=1, set it here too"
        )
    return _model_source(f"{path}:{name}", traced.counts, notes)


def _read_onnx(path: str, options: ModelOptions) -> Source:
    given = {
        "--dtype": bool(options.dtype),
        "--backward": options.backward,
        "--channels-last": options.channels_last,
        "--autocast": options.autocast,
    }
    if ignored := [flag for flag, is_given in given.items() if is_given]:
        raise InputError(
            f"an ONNX file has its own types and layout, and no gradients; leave out {ignored[0]}",
            path,
        )
    with _extra("onnx", path):
        from foretune.miopen.onnx_graph import read_onnx
    found = read_onnx(path, options.inputs)
    notes = []
    if found.left_out:
        notes.append(f"convolutions that are left out: {_list(found.left_out)}")
    return _model_source(path, dict(found.counts), notes)


def _model_source(name: str, counts: dict[ConvProblem, int], notes: list[str]) -> Source:
    if not counts:
        hint = f"; {notes[0]}" if notes else ""
        raise InputError(f"the model asks MIOpen for no convolution{hint}", name)
    return Source(counts, tuple(notes))


def _list(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(counts).most_common())


@contextmanager
def _extra(name: str, where: str) -> Iterator[None]:
    """Say what to install if the block fails for want of an extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name:
            raise
        raise InputError(f"needs {name}: pip install 'foretune[{name}]'", where) from None


def _read_file(path: str) -> Source:
    name = source_name(path)
    log = IssueLog(name)
    lines = _parts(read_lines(open_source(path), log, errors="replace"))
    first = next(lines, None)
    if first is None:
        raise InputError("it holds nothing but blank lines and comments", name)
    lines = chain([first], lines)
    parse = next((parse for pattern, parse in _PARSERS if pattern.match(first[1])), None)
    if parse is None:
        return _read_log(LogReader(lines, log))
    counts: Counter[ConvProblem] = Counter()
    errors = []
    for number, text in lines:
        line, count = parse(number, text)
        counts.update(dict.fromkeys(line.problems, count))
        if line.error:
            errors.append(line)
    return Source(dict(counts), errors=(*errors, *map(issue_line, log.issues)))


def _parts(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Lines without blank ones and comments; a carriage return alone ends a line too."""
    for number, text in lines:
        for part in map(str.strip, text.split("\r")):
            if part and not part.startswith("#"):
                yield number, part


def _read_log(reader: LogReader) -> Source:
    counts: Counter[ConvProblem] = Counter()
    errors = []
    for line in reader:
        counts.update(line.problems)
        if line.error:
            errors.append(line)
    errors += map(issue_line, reader.issues)
    others = _list(reader.other_operations)
    note = f"operations that are no convolution: {others}" if others else ""
    if not counts and not errors:
        raise InputError(f"{HOW_TO_LOG}{'; ' if note else ''}{note}", reader.log.file)
    return Source(dict(counts), (note,) if note else (), tuple(errors))


def _parse_text(number: int, text: str) -> tuple[ProblemLine, int]:
    return parse_line(number, text), 1


def _parse_json(number: int, text: str) -> tuple[ProblemLine, int]:
    """Take a line that a verb of the command wrote with --json."""
    try:
        record: Any = json.loads(text)
        if not isinstance(record, dict) or not isinstance(record.get("problem"), str):
            raise InputError('expected a JSON object with a find-db key as its "problem"')
        count = record.get("count", 1)
        if type(count) is not int or count < 1:
            raise InputError(f'expected a "count" of at least 1, got {count!r}')
        return ProblemLine(number, text, (parse_find_key(record["problem"]),)), count
    except (ValueError, RecursionError) as error:
        wrong = error if isinstance(error, InputError) else InputError(f"no JSON object: {error}")
        return ProblemLine(number, text, (), wrong), 0


_Parse = Callable[[int, str], tuple[ProblemLine, int]]
#: Who reads the lines of a file, by the beginning of its first.
_PARSERS: tuple[tuple[re.Pattern[str], _Parse], ...] = (
    (_KEY, _parse_text),
    (re.compile(r'\{\s*"(?:problem|input)"'), _parse_json),
)
