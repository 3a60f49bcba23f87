"""The measuring process with the operation "faulty" in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import foretune.kernels
from foretune.kernels import measuring

_EXTRA = str(Path(__file__).with_name("extra_operations"))


def add_operation() -> None:
    """Let "faulty" be found as if it came with foretune."""
    if _EXTRA not in foretune.kernels.__path__:
        foretune.kernels.__path__.append(_EXTRA)


def serve(
    device: str, options: Mapping[str, Any] | None = None
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """As `foretune.kernels.measuring.serve`."""
    add_operation()
    return measuring.serve(device, options)
