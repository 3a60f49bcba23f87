"""The logger "foretune": quiet unless a program or FORETUNE_LOG asks for more."""

from __future__ import annotations

import logging
import os
import sys
from functools import lru_cache

from foretune.errors import InputError

#: Environment variable that shows the log on stderr.
VARIABLE = "FORETUNE_LOG"
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


@lru_cache(maxsize=1)
def logger() -> logging.Logger:
    """Give the library's logger, set up as FORETUNE_LOG asks.

    Raises
    ------
    InputError
        If the variable holds no known level.

    Examples
    --------
    >>> logger().name
    'foretune'
    """
    made = logging.getLogger("foretune")
    made.addHandler(logging.NullHandler())
    word = os.environ.get(VARIABLE, "").strip().lower()
    if word:
        if word not in _LEVELS:
            raise InputError(f"expected one of {', '.join(_LEVELS)}, got {word!r}", VARIABLE)
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("foretune: %(message)s"))
        made.addHandler(handler)
        made.setLevel(_LEVELS[word])
    return made
