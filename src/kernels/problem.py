"""Words that the problems of every operation share."""

from __future__ import annotations

from types import MappingProxyType

#: Data types by MIOpen's names, with the bytes of one element.
DTYPE_BYTES = MappingProxyType(
    {
        "FP32": 4,
        "FP16": 2,
        "BF16": 2,
        "INT8": 1,
        "INT32": 4,
        "FP64": 8,
        "FP8": 1,
        "BF8": 1,
        "INT64": 8,
    }
)
