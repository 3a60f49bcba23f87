"""Progress of long work, shown on a terminal and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

_BAR = 24


@contextmanager
def progress(stream: TextIO | None = None) -> Iterator[Callable[[str, int, int], None] | None]:
    """Yield a function that takes a text, steps done and steps in all.

    It yields None where nobody watches. The line is cleared at the end.

    Parameters
    ----------
    stream : text file, optional
        Where to show it. Default: standard error.

    Examples
    --------
    >>> import io
    >>> with progress(io.StringIO()) as show:
    ...     show is None
    True
    """
    target = sys.stderr if stream is None else stream
    if not target.isatty():
        yield None
        return

    def show(text: str, done: int, total: int) -> None:
        filled = _BAR * done // max(total, 1)
        bar = "#" * filled + "." * (_BAR - filled)
        # Clears the rest of the line, because the text before may have been longer.
        print(f"\r[{bar}] {done}/{total} {text}\x1b[K", end="", file=target, flush=True)

    try:
        yield show
    finally:
        print("\r\x1b[K", end="", file=target, flush=True)
