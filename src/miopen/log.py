"""Convolutions out of files: a problem in each line, or a program's log with them in its noise."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from io import BufferedReader
from itertools import pairwise
from typing import IO, Any

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.archive import (
    Issue,
    IssueLog,
    decompress_stream,
    open_archive,
    read_lines,
)
from foretune.miopen.driver import DRIVER_COMMAND, parse_problem_line

#: What to do about a log in which no convolution is found.
HOW_TO_LOG = (
    "no line is of a convolution by MIOpenDriver; was the log written with "
    "MIOPEN_ENABLE_LOGGING_CMD=1? (MIOpen logs to stderr: program 2> program.log)"
)

# Colours and the like, and titles of the terminal.
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
# Where a message of MIOpen begins, also within a line that another thread was writing.
_MESSAGE = re.compile(
    r"""MIOpen\([A-Za-z]*\)\s*:|(?:[^\s"']*[/\\])?(?<!\w)MIOpenDriver(?:\.exe)?["']?\s"""
)
_LOGGED = re.compile(r"\[LogCmd\w*\]\s*$")
# The end of the command as MIOpen logs it, whatever was written right after it.
_LOGGED_COMMAND = re.compile(r".*? -F [0-7] -t \d", re.DOTALL)


@dataclass(frozen=True)
class ProblemLine:
    """One line of a file of problems, with its problems or what was wrong.

    Parameters
    ----------
    number : int
        Line number, from 1; 0 if the error is about the whole file.
    text : str
        The line.
    problems : tuple of ConvProblem
        Empty if there is an error.
    error : InputError, optional
        Why there are none.
    """

    number: int
    text: str
    problems: tuple[ConvProblem, ...] = ()
    error: InputError | None = None


def read_problem_lines(path: str | os.PathLike[str]) -> Iterator[ProblemLine]:
    r"""Read a file in which every line is a find-db key or a driver line.

    Blank lines and lines that start with "#" are skipped. A line that is something else is given
    with its error, in its place.

    Parameters
    ----------
    path : path-like
        The file, plain or compressed; "-" for standard input.

    Yields
    ------
    ProblemLine
        In the file's order.

    Raises
    ------
    InputError
        If there is no such file, or it is empty.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "a.txt")
    ...     _ = path.write_text("# two\nMIOpenDriver conv -F 1\nMIOpenDriver conv -Q 1")
    ...     [(line.number, len(line.problems)) for line in read_problem_lines(path)]
    [(2, 1), (3, 0)]
    """
    log = IssueLog(source_name(path))
    shown = 0
    for number, text in read_lines(open_source(path), log):
        for issue in log.issues[shown:]:
            yield issue_line(issue)
        shown = len(log.issues)
        for part in map(str.strip, text.split("\r")):
            if part and not part.startswith("#"):
                yield parse_line(number, part)
    for issue in log.issues[shown:]:
        yield issue_line(issue)


@dataclass
class LogReader:
    r"""The convolutions in a program's log, read as they are asked for.

    Parameters
    ----------
    lines : iterable of int and str
        Line numbers and texts, as `foretune.miopen.archive.read_lines` gives them.
    log : IssueLog
        Where the reader of those lines reports.

    Attributes
    ----------
    line_count : int
        Lines read so far.
    other_operations : Counter of str
        MIOpenDriver lines of other operations (bnorm, pool, ...), which are skipped.

    Examples
    --------
    >>> lines = ["hello", "./bin/MIOpenDriver conv -F 2", "MIOpenDriver pool -n 1"]
    >>> reader = LogReader(enumerate(lines, 1), IssueLog("a.log"))
    >>> [line.number for line in reader], dict(reader.other_operations)
    ([2], {'pool': 1})
    """

    lines: Iterable[tuple[int, str]]
    log: IssueLog
    line_count: int = 0
    other_operations: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._records = self._read()

    @property
    def issues(self) -> list[Issue]:
        """What could not be used of the file as a whole, so far."""
        return self.log.issues

    def __iter__(self) -> Iterator[ProblemLine]:
        return self._records

    def _read(self) -> Iterator[ProblemLine]:
        for number, text in self.lines:
            self.line_count = number
            if "MIOpenDriver" in text:
                # Progress bars go back to the line's beginning and write over it.
                for part in text.split("\r"):
                    yield from self._read_part(number, _ANSI.sub("", part).strip())

    def _read_part(self, number: int, text: str) -> Iterator[ProblemLine]:
        for command, is_logged in _commands(text):
            match = DRIVER_COMMAND.search(command)
            if match and match[1].startswith("conv"):
                yield replace(_parse_command(command, is_logged), number=number)
            elif match:
                self.other_operations[match[1]] += 1


def read_log(path: str | os.PathLike[str]) -> LogReader:
    r"""Read the convolutions that a program's log names (``MIOPEN_ENABLE_LOGGING_CMD=1``).

    Lines without MIOpenDriver are skipped; so are other operations, which are counted. Threads and
    processes may have written into each other's lines: what is whole of them is read. A
    convolution that can't be read is given with its error, in its place.

    Parameters
    ----------
    path : path-like
        The file, plain or compressed; "-" for standard input.

    Returns
    -------
    LogReader
        Iterate over it once for a `ProblemLine` for each convolution.

    Raises
    ------
    InputError
        If there is no such file, or it is empty.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "a.log")
    ...     _ = path.write_text("hello\n./bin/MIOpenDriver conv -F 2\n")
    ...     [line.number for line in read_log(path)]
    [2]
    """
    log = IssueLog(source_name(path))
    return LogReader(read_lines(open_source(path), log, errors="replace"), log)


def parse_line(number: int, text: str) -> ProblemLine:
    """Problems of one line, or its error.

    Examples
    --------
    >>> str(parse_line(3, "MIOpenDriver conv -n two").error)
    "driver line, -n: expected a whole number, got 'two'"
    """
    try:
        return ProblemLine(number, text, tuple(parse_problem_line(text)))
    except InputError as error:
        return ProblemLine(number, text, (), error)


def issue_line(issue: Issue) -> ProblemLine:
    """Give what was wrong with a file the form of a line.

    Examples
    --------
    >>> str(issue_line(Issue("a.txt", 7, "not UTF-8")).error)
    'a.txt, line 7: not UTF-8'
    """
    return ProblemLine(issue.line, "", (), InputError(issue.reason, issue.where))


def source_name(path: str | os.PathLike[str]) -> str:
    """Name of a file in messages.

    Examples
    --------
    >>> source_name("-")
    'standard input'
    """
    return "standard input" if os.fspath(path) == "-" else os.fspath(path)


def open_source(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file, or standard input for "-", decompressed if it is an archive.

    Raises
    ------
    InputError
        If it can't be opened, or is empty.
    """
    if os.fspath(path) != "-":
        return open_archive(path)
    if sys.stdin is None:
        raise InputError("it is closed", source_name(path))
    stream: Any = sys.stdin.buffer
    if not isinstance(stream, BufferedReader):
        # What stands for it in a notebook or a test need not be able to look ahead.
        stream = BufferedReader(stream)
    return decompress_stream(stream)


def _commands(text: str) -> Iterator[tuple[str, bool]]:
    """Each MIOpenDriver command of a line, and whether MIOpen's log names it as one of its own."""
    starts = [match.start() for match in _MESSAGE.finditer(text)]
    for start, end in pairwise([*starts, len(text)]):
        yield text[start:end].strip(), bool(_LOGGED.search(text[:start]))


# A program asks for the same convolutions in every step.
@lru_cache(maxsize=4096)
def _parse_command(text: str, is_logged: bool) -> ProblemLine:
    """Problems of a command, or its error; as line 0."""
    whole = _LOGGED_COMMAND.match(text)
    if is_logged and not whole:
        # Flags that are missing would be taken for the driver's defaults.
        error = InputError("the line breaks off, or another was written into it")
        return ProblemLine(0, text, (), error)
    line = parse_line(0, text)
    return parse_line(0, whole[0]) if line.error and whole else line
