"""What the readers of find-dbs and perf-dbs have in common."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from foretune.miopen.archive import Issue, IssueLog, open_archive, read_lines


class Record(Protocol):
    """What was read from one place of a file."""

    @property
    def line(self) -> int:
        """Line number in the file, or 0."""


RecordT = TypeVar("RecordT", bound=Record)


class DatabaseReader(ABC, Generic[RecordT]):
    """The records of one database file, read as they are asked for.

    Parameters
    ----------
    path : path-like
        The file, plain or compressed.
    strict : bool, default False
        Raise at the first issue.
    repeats : bool, default False
        Give a key that was there before once more. Else it is an issue: MIOpen takes the first.

    Attributes
    ----------
    path : str
        The file.
    lines, items : int
        Lines or rows read, and what they hold of solvers, so far.
    """

    def __init__(
        self, path: str | os.PathLike[str], strict: bool = False, repeats: bool = False
    ) -> None:
        self.path = os.fspath(path)
        self._repeats = repeats
        self.lines = self.items = 0
        self._log = IssueLog(self.path, strict)
        self._file = open_archive(path)
        self._records = self._read()

    @property
    def issues(self) -> list[Issue]:
        """What could not be used, so far."""
        return self._log.issues

    def report(self, record: RecordT, reason: str) -> None:
        """Add an issue about a record that was read, or raise it if strict."""
        self._log.report(record.line, reason)

    def __iter__(self) -> Iterator[RecordT]:
        return self._records

    @abstractmethod
    def _read(self) -> Iterator[RecordT]:
        """Yield the records; nothing may be read before the first is asked for."""

    def _read_entries(self, fault: Callable[[str], str]) -> Iterator[tuple[int, str, str]]:
        """Yield number, key and values of the lines whose key is new and has no fault."""
        report = self._log.report
        seen = set()
        for number, line in read_lines(self._file, self._log):
            self.lines = number
            key, equals, values = line.partition("=")
            if not equals:
                if line and not line.isspace():
                    report(number, "no '='; the line is skipped")
            elif wrong := fault(key):
                report(number, f"the key {key!r} {wrong}; the line is skipped")
            elif key in seen and not self._repeats:
                report(number, f"the key {key!r} was there before; the first is kept")
            else:
                seen.add(key)
                yield number, key, values
