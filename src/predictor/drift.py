"""Whether a device still takes as long as its model expects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from foretune.kernels.records import MeasuredCandidate

#: Measurements that are looked at: the newest.
RECENT = 64
#: Fewer tell nothing.
_FEWEST = 16
#: A median of measured over predicted times beyond this, or below its inverse, is drift. Models
#: are off by less than that on the shapes of their own datasets.
_BAND = 1.5


@dataclass(frozen=True)
class Drift:
    """How measured times compare with predicted ones.

    Attributes
    ----------
    ratio : float
        Median of measured over predicted time.
    count : int
        Measurements behind it.
    """

    ratio: float
    count: int

    @property
    def is_large(self) -> bool:
        """Whether the model ought to be trained again."""
        return self.count >= _FEWEST and not 1 / _BAND <= self.ratio <= _BAND

    def __str__(self) -> str:
        told = f"measured times are {self.ratio:.2f} times the predicted (median of {self.count})"
        if not self.is_large:
            return told
        return f"{told}: the model doesn't fit this device; run foretune train kernels --user"


def drift_of(measured: Iterable[MeasuredCandidate]) -> Drift | None:
    """Compare measured with predicted times; None if nothing was both.

    Examples
    --------
    >>> slow = MeasuredCandidate("ConvNaive", "", 3.0, 3.0, 3.0, 7, 0, predicted_ms=1.0)
    >>> drift_of([slow] * 20).is_large, drift_of([slow]).is_large, drift_of([])
    (True, False, None)
    """
    ratios = [one.time_ms / one.predicted_ms for one in measured if one.predicted_ms]
    return Drift(float(np.median(ratios)), len(ratios)) if ratios else None
