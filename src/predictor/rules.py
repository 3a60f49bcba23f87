"""What the training data says plainly: which candidates run where, and how far it reaches.

Trees answer any question, also one that nothing in their training resembles. These rules don't
learn; they look up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.predictor.features.conv import FEATURE_NAMES, RAW_NAMES

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretune.predictor.dataset import RankingData

#: A cell of fewer records drops no candidate.
LEAST_RECORDS = 20

_RAW = {name: index for index, name in enumerate(RAW_NAMES)}
#: Features whose range in training bounds what may be accepted.
_RANGED = (
    "batch in_channels out_channels groups in_px out_px taps stride_h stride_w dil_h dil_w "
    "pad_h pad_w log_flops log_traffic gemm_m gemm_n gemm_k"
).split()
_RANGED_AT = [FEATURE_NAMES.index(name) for name in _RANGED]

CellKey = tuple[int, ...]
#: Lowest and highest of each ranged feature.
Box = tuple[list[float], list[float]]
#: From the coarsest kind of cell to the finest.
_CELL_WIDTHS = (3, 6, 9)


@dataclass(frozen=True)
class Cell:
    """What training saw of problems like one.

    Attributes
    ----------
    allowed : array of bool, shape (candidates,)
        Candidates listed in the narrowest kind of cell that has enough records.
    winners : array of bool, shape (candidates,)
        Candidates that were the fastest of some record of the middle kind of cell (dimensions,
        layout, type, 1x1, unit stride, grouping).
    known : bool
        Whether that kind of cell has enough records.
    """

    allowed: npt.NDArray[np.bool_]
    winners: npt.NDArray[np.bool_]
    known: bool


class CandidateRules:
    """Look-up of cells and ranges for the problems of one direction.

    Parameters
    ----------
    candidates : tuple of str
    cells : mapping
        Cell key -> (records, listed, winners), the last two as bit masks over the candidates.
    ranges : mapping
        "2" or "3" (dimensions) -> lowest and highest of each ranged feature.
    """

    def __init__(
        self,
        candidates: tuple[str, ...],
        cells: Mapping[CellKey, tuple[int, int, int]],
        ranges: Mapping[str, Box],
    ) -> None:
        self.candidates = candidates
        self.cells = dict(cells)
        self.ranges = dict(ranges)
        self._found: dict[CellKey, Cell] = {}

    @classmethod
    def learn(cls, data: RankingData, features: npt.NDArray[np.float32]) -> CandidateRules:
        """Collect the cells and ranges of records."""
        listed = np.isfinite(data.times)
        winner = data.times.argmin(axis=1)
        cells: dict[CellKey, tuple[int, int, int]] = {}
        bits = [_to_bits(row) for row in listed]
        for raw, bit, best in zip(data.raw.tolist(), bits, winner.tolist(), strict=True):
            key = cell_key(raw)
            for width in _CELL_WIDTHS:
                count, seen, won = cells.get(key[:width], (0, 0, 0))
                cells[key[:width]] = (count + 1, seen | bit, won | 1 << best)
        ranges = {}
        for name, is_3d in (("2", 0), ("3", 1)):
            rows = features[data.raw[:, _RAW["is_3d"]] == is_3d][:, _RANGED_AT]
            if len(rows):
                ranges[name] = (rows.min(axis=0).tolist(), rows.max(axis=0).tolist())
        return cls(data.candidates, cells, ranges)

    def cell(self, key: CellKey) -> Cell:
        """Cell of problems of one kind (`cell_key`)."""
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._look_up(key)
        return found

    def _look_up(self, key: CellKey) -> Cell:
        none = (0, 0, 0)
        middle, _, won = self.cells.get(key[: _CELL_WIDTHS[1]], none)
        winners = self._to_flags(won)
        known = middle >= LEAST_RECORDS
        for width in reversed(_CELL_WIDTHS):
            count, listed, _ = self.cells.get(key[:width], none)
            if count >= LEAST_RECORDS:
                return Cell(self._to_flags(listed), winners, known)
        return Cell(np.ones(len(self.candidates), bool), winners, known=False)

    def _to_flags(self, bits: int) -> npt.NDArray[np.bool_]:
        return np.array([bits >> i & 1 for i in range(len(self.candidates))], bool)

    def outside(self, row: npt.NDArray[np.float32]) -> str:
        """Say which feature lies outside the training range; empty if none does."""
        # One problem at a time, and as plain numbers: numpy takes five times as long.
        values = row.tolist()
        bounds = self._bounds.get(bool(values[0]))
        if bounds is None:
            return f"no {3 if values[0] else 2}-D problems were learnt"
        for at, low, high in bounds:
            if not low <= values[at] <= high:
                return (
                    f"{FEATURE_NAMES[at]} {values[at]:g} is outside what was learnt "
                    f"({low:g} to {high:g})"
                )
        return ""

    @cached_property
    def _bounds(self) -> dict[bool, list[tuple[int, float, float]]]:
        return {
            name == "3": list(zip(_RANGED_AT, low, high, strict=True))
            for name, (low, high) in self.ranges.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Give the rules for JSON."""
        cells = {",".join(map(str, key)): value for key, value in sorted(self.cells.items())}
        return {"cells": cells, "ranges": self.ranges}

    @classmethod
    def from_dict(cls, candidates: tuple[str, ...], content: Mapping[str, Any]) -> CandidateRules:
        """Take the rules from JSON."""
        cells = {
            tuple(map(int, key.split(","))): tuple(value) for key, value in content["cells"].items()
        }
        return cls(candidates, cells, content["ranges"])


def cell_key(raw: list[float]) -> CellKey:
    """Kind of a problem, its coarsest traits first, from its raw numbers."""
    channels, groups = raw[5], raw[7]
    grouping = 0 if groups == 1 else 1 if groups == channels else 2
    return (
        int(raw[0]),
        int(raw[3]),
        int(raw[1]),
        int(raw[14] == raw[15] == raw[16] == 1),
        int(raw[20] == raw[21] == raw[22] == 1),
        grouping,
        int(raw[17] == raw[18] == raw[19] == 0),
        int(raw[23] == raw[24] == raw[25] == 1),
        int(raw[15] == raw[16] == 3),
    )


def _to_bits(flags: npt.NDArray[np.bool_]) -> int:
    return sum(1 << int(i) for i in np.flatnonzero(flags))
