"""Whole sources for a backend: its prelude, then a kernel file with what it includes."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from foretune.kernels.solver import source_folder

_INCLUDE = re.compile(r'^#include "([^"]+)"\n', re.MULTILINE)


@lru_cache(maxsize=256)
def whole_source(file: str, backend: str) -> str:
    """Join a backend's prelude and a kernel file into one text that includes nothing.

    Run-time compilers have no folder to look in. Included names are relative to the file that
    includes them.

    Parameters
    ----------
    file : str
        Below ``foretune/kernels``.
    backend : str
        Names the prelude.
    """
    return f"{prelude(backend)}\n{_inlined(source_folder() / file)}"


@lru_cache(maxsize=8)
def prelude(backend: str) -> str:
    """Give the words that kernels may use with a backend."""
    folder = source_folder() / "runtime"
    return "\n".join(_inlined(folder / name) for name in (f"prelude_{backend}.h", "prelude.h"))


def _inlined(path: Path) -> str:
    return _INCLUDE.sub(
        lambda match: _inlined(path.parent / match[1]), path.read_text(encoding="utf-8")
    )
