"""JSON that every reader takes."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any


def to_json(value: Any) -> str:
    """One line of JSON, with null where a number isn't finite.

    Examples
    --------
    >>> to_json({"mean": float("nan"), "of": [0, float("inf")]})
    '{"mean": null, "of": [0, null]}'
    """
    return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return value
