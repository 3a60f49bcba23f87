"""What the scores of a solver's configs are sums of: values of its tuning parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.miopen.config_grammar import parameter_names, parse_config

Indices = npt.NDArray[np.intp]

# A parameter with more values than this is left out, or cut into ranges if it is a number.
_MOST_VALUES = 32


def share_outputs(solver: str, configs: Sequence[str], counts: Mapping[str, Indices]) -> Indices:
    """Give each config its outputs, one row a parameter that tells configs apart.

    Parameters
    ----------
    solver : str
    configs : sequence of str
    counts : mapping of str to array of shape (configs,)
        Data type -> how often each was seen.

    Returns
    -------
    array of shape (parameters, configs)
        Outputs that add up to a config's score; the number of outputs stands for none.

    Examples
    --------
    >>> share_outputs("ConvAsm1x1U", ["1,8", "1,16", "1,32"], {"FP32": np.array([5, 4, 3])})
    array([[2, 0, 1]])
    """
    columns: dict[bytes, int] = {}
    rows = []
    for values in _parameters(solver, configs, counts):
        distinct = sorted(set(values))
        row = np.full(len(configs), -1)
        # Of two values one is enough: only the difference counts.
        for value in distinct[len(distinct) == 2 :]:
            has = np.array([other == value for other in values])
            row[has] = columns.setdefault(has.tobytes(), len(columns))
        rows.append(row)
    outputs = np.array(rows, np.intp).reshape(-1, len(configs))
    outputs[outputs < 0] = len(columns)
    return outputs


def _parameters(
    solver: str, configs: Sequence[str], counts: Mapping[str, Indices]
) -> list[list[str]]:
    """Values of the parameters that tell configs apart, and of the first ones joined to a tile.

    A parameter that follows from another one, or from the data type, adds nothing. The first
    ones (kernel, block, tile) act together, which sums don't show, so what they are together is
    one more.
    """
    named = [
        dict(zip(parameter_names(solver, config), parse_config(solver, config), strict=True))
        for config in configs
    ]
    columns = []
    for name in dict.fromkeys(name for values in named for name in values):
        values = [config.get(name, "") for config in named]
        of_types = [
            {value for value, count in zip(values, seen, strict=True) if count}
            for seen in counts.values()
        ]
        if max(map(len, of_types)) < 2:
            continue
        if len(set(values)) > _MOST_VALUES:
            if not all(value.isdecimal() for value in values) or len(named[0]) > 1:
                continue
            values = _ranges(list(map(int, values)), sum(counts.values()))
        columns.append(values)
    kept: list[list[str]] = []
    # Finer ones first, so that coarser ones that follow from them are found.
    for values in sorted(columns, key=lambda column: -len(set(column))):
        if not any(_follows(values, other) for other in kept):
            kept.append(values)
    tile = _tile(columns)
    if tile and not any(_follows(tile, other) for other in kept):
        kept.append(tile)
    return kept


def _tile(columns: Sequence[Sequence[str]]) -> list[str]:
    """Join the first parameters, as many as there are before a word."""
    tile: list[str] = []
    for values in columns:
        is_kernel = all(value.endswith("<") for value in values)
        if not is_kernel and not all(value.isdecimal() for value in values):
            break
        joined = [f"{a},{b}" for a, b in zip(tile or [""] * len(values), values, strict=True)]
        if len(set(joined)) > _MOST_VALUES:
            break
        tile = joined
    return tile


def _follows(values: Sequence[str], other: Sequence[str]) -> bool:
    return len(set(zip(other, values, strict=True))) == len(set(other))


def _ranges(numbers: Sequence[int], counts: Any) -> list[str]:
    """Cut numbers into ranges, narrow ones where many were seen."""
    order = np.argsort(numbers)
    # The root, so that one value that nearly always wins doesn't leave one range to the rest.
    weights = np.sqrt(counts[order])
    below = np.cumsum(weights) - weights
    part = np.empty(len(numbers), np.intp)
    part[order] = below * _MOST_VALUES / weights.sum()
    return [f"{number:03}" for number in part]
