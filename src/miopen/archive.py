"""Text and bytes out of plain, bzip2, xz and gzip files, with what was wrong kept as issues."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import IO, cast

from foretune.errors import InputError
from foretune.files import replace_file as replace_file

BLOCK_BYTES = 1 << 20
BROKEN_ARCHIVE = (EOFError, OSError, zlib.error, lzma.LZMAError)
#: Suffix of each kind of archive and the bytes that such a file starts with.
ARCHIVES = {".bz2": b"BZh", ".xz": b"\xfd7zXZ\x00", ".gz": b"\x1f\x8b"}


@dataclass(frozen=True)
class Issue:
    """Something in a file that could not be used, and was left out.

    Parameters
    ----------
    file : str
        The file's path.
    line : int
        Line number, from 1; 0 if it is about the whole file.
    reason : str
        What was wrong, and what it cost.

    Examples
    --------
    >>> str(Issue("gfx90a68.HIP.fdb.txt", 7, "no '='; the line is skipped"))
    "gfx90a68.HIP.fdb.txt, line 7: no '='; the line is skipped"
    """

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"

    @property
    def where(self) -> str:
        """File and line in words."""
        return f"{self.file}, line {self.line}" if self.line else self.file


@dataclass
class IssueLog:
    """Collects the issues of one file; the first one is an error if ``strict``.

    Parameters
    ----------
    file : str
        The file's path, for messages.
    strict : bool, default False
        Raise `InputError` instead of collecting.

    Examples
    --------
    >>> log = IssueLog("a.txt")
    >>> log.report(3, "no '='")
    >>> [issue.line for issue in log.issues]
    [3]
    """

    file: str
    strict: bool = False
    issues: list[Issue] = field(default_factory=list)

    def report(self, line: int, reason: str) -> None:
        """Keep an issue, or raise it if strict."""
        issue = Issue(self.file, line, reason)
        if self.strict:
            raise InputError(reason, issue.where)
        self.issues.append(issue)


def open_archive(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file for reading bytes, decompressed if it is an archive.

    Raises
    ------
    InputError
        If there is no such file, it is no file, can't be opened, is empty, or its name ends like
        an archive's but its content is something else.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.txt.xz")
    ...     _ = path.write_bytes(lzma.compress(b"hello"))
    ...     with open_archive(path) as file:
    ...         file.read()
    b'hello'
    """
    path = Path(path)
    try:
        # Once, because what a pipe has given it doesn't give again.
        file = path.open("rb")
        start = file.peek(8)
    except FileNotFoundError:
        raise InputError("there is no such file", str(path)) from None
    except IsADirectoryError:
        raise InputError("this is a directory, expected a file", str(path)) from None
    except OSError as error:
        raise InputError(f"can't be opened: {error.strerror}", str(path)) from None
    kind = _archive_kind(start)
    if not start or (path.suffix in ARCHIVES and kind != path.suffix):
        file.close()
        if not start:
            raise InputError("the file is empty", str(path))
        raise InputError(
            f"the name ends in {path.suffix}, but the content is no such archive", str(path)
        )
    if kind and file.seekable():
        # An archive closes only what it has opened itself.
        file.close()
        return _decompress(path, kind)
    return _decompress(file, kind)


def decompress_stream(file: BufferedReader) -> IO[bytes]:
    """Bytes of an open file such as standard input, decompressed if they are an archive's.

    Examples
    --------
    >>> import io
    >>> decompress_stream(io.BufferedReader(io.BytesIO(gzip.compress(b"hello")))).read()
    b'hello'
    """
    return _decompress(file, _archive_kind(file.peek(8)))


def _archive_kind(start: bytes) -> str:
    return next((suffix for suffix, magic in ARCHIVES.items() if start.startswith(magic)), "")


def _decompress(source: Path | BufferedReader, kind: str) -> IO[bytes]:
    match kind:
        case ".bz2":
            return cast(IO[bytes], bz2.open(source, "rb"))
        case ".xz":
            return cast(IO[bytes], lzma.open(source, "rb"))
        case ".gz":
            return cast(IO[bytes], gzip.open(source, "rb"))
    return cast(BufferedReader, source)


def read_lines(file: IO[bytes], log: IssueLog, errors: str = "strict") -> Iterator[tuple[int, str]]:
    r"""Yield number and text of each line of an open file, and close it at the end.

    Lines come without their end, and the first without a byte order mark. A line that isn't UTF-8
    costs itself. Where an archive breaks off, the whole lines before the break are still given.
    Both are reported to ``log``.

    Parameters
    ----------
    file : binary file
        From `open_archive`.
    log : IssueLog
        Takes the issues; if it is strict, the first ends the reading.
    errors : {'strict', 'replace'}
        Whether bytes that aren't UTF-8 cost their line, or are replaced.

    Yields
    ------
    tuple of int and str
        Line number, from 1, and text.

    Examples
    --------
    >>> import io
    >>> log = IssueLog("a.txt")
    >>> list(read_lines(io.BytesIO(b"one\n\xff\nthree"), log))
    [(1, 'one'), (3, 'three')]
    >>> log.issues[0].reason
    'not UTF-8; the line is skipped'
    """
    number = 0
    rest: list[bytes] = []
    with file:
        while block := _read_block(file, log, f"line {number}"):
            whole, newline, tail = block.rpartition(b"\n")
            if newline:
                lines = b"".join([*rest, whole]).split(b"\n")
                yield from _decode(lines, number, log, errors)
                number += len(lines)
                rest = []
            rest.append(tail)
        if block is None:
            return
        last = b"".join(rest)
        if last:
            yield from _decode([last], number, log, errors)
        elif not number:
            raise InputError("the file is empty", log.file)


def read_all(file: IO[bytes], log: IssueLog) -> bytes:
    """Read the content of an open file, up to where an archive breaks off.

    Examples
    --------
    >>> import io
    >>> read_all(io.BytesIO(b"hello"), IssueLog("a.db"))
    b'hello'
    """
    blocks: list[bytes] = []
    while block := _read_block(file, log, f"{sum(map(len, blocks))} bytes"):
        blocks.append(block)
    return b"".join(blocks)


def _read_block(file: IO[bytes], log: IssueLog, so_far: str) -> bytes | None:
    """Next bytes, none at the end; None where an archive breaks off, which is reported."""
    try:
        # Not read(): that would lose what it had gathered when the archive breaks off.
        return cast("gzip.GzipFile", file).read1(BLOCK_BYTES)
    except BROKEN_ARCHIVE as error:
        log.report(0, f"the file breaks off after {so_far} ({error}); the rest is missing")
        return None


def _decode(
    lines: list[bytes], number: int, log: IssueLog, errors: str
) -> Iterator[tuple[int, str]]:
    if not number:
        # Editors on Windows start a file with it.
        lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
    for number, line in enumerate(lines, number + 1):  # noqa: B020
        try:
            yield number, line.decode(errors=errors).rstrip("\r")
        except UnicodeDecodeError:
            log.report(number, "not UTF-8; the line is skipped")


def open_for_writing(path: Path, suffix: str) -> IO[bytes]:
    r"""Open a file for writing bytes that are compressed as a suffix says.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with open_for_writing(Path(folder, "a"), ".gz") as file:
    ...         _ = file.write(b"hello")
    ...     Path(folder, "a").read_bytes()[:2]
    b'\x1f\x8b'
    """
    openers: dict[str, Callable[[Path, str], object]] = {
        ".bz2": bz2.open,
        ".xz": lzma.open,
        ".gz": gzip.open,
    }
    return cast(IO[bytes], openers.get(suffix, open)(path, "wb"))


def write_lines(path: str | os.PathLike[str], lines: Iterable[str]) -> int:
    """Write lines to a file in one step, compressed as its suffix says.

    Returns
    -------
    int
        Lines written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_lines(Path(folder, "a.txt.bz2"), ["one", "two"])
    2
    """
    path = Path(path)
    count = 0
    with (
        replace_file(path) as temporary,
        open_for_writing(temporary, path.suffix) as file,
    ):
        for line in lines:
            file.write(line.encode() + b"\n")
            count += 1
    return count
