"""Regular expressions that are compiled when they are first needed."""

from __future__ import annotations

import re
from functools import cache


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern; its digits and letters are ASCII alone.

    Compiling all patterns of MIOpen's formats takes longer than a first answer, which needs few.

    Examples
    --------
    >>> compiled("[0-9]+").fullmatch("304") is not None
    True
    """
    return re.compile(pattern, re.ASCII)
