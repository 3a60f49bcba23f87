"""Checks that hold an entry against the same shape at other batch sizes.

What computes a larger batch computes this one in no more time, and what computes one of M images
computes N in N / M of its times. A measured time of many times that is an accident of measuring (a
cold library, a busy card), or a solver that lost for no reason of its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from foretune.miopen.audit_records import AuditedRecord, AuditSetting, Suspicion, is_naive
from foretune.miopen.audit_roofline import least_ms
from foretune.miopen.find_db import FindItem

#: A time of more than so many times that of a neighbour, scaled to its batch, is not believed.
TOO_SLOW = 10.0
#: A naive winner is not believed where another solver should take less than this share of it.
FASTER_THAN_NAIVE = 0.5
#: Differences of fewer milliseconds are those of a launch.
LAUNCH_MS = 0.02


class Measured(NamedTuple):
    """A time at a batch size."""

    time_ms: float
    batch: int


class Series:
    """Times of one shape at several batch sizes.

    Parameters
    ----------
    measured : iterable of Measured

    Examples
    --------
    >>> series = Series([Measured(1.0, 8), Measured(3.0, 32)])
    >>> series.scaled_to(16)
    (2.0, Measured(time_ms=1.0, batch=8))
    """

    def __init__(self, measured: Iterable[Measured]) -> None:
        ordered = sorted(measured, key=lambda one: one.batch)
        self._batches = [one.batch for one in ordered]
        # The best of all smaller batches by time for an image, of all larger ones by time.
        self._below = list(accumulate(ordered, _less_for_an_image))
        self._above = list(accumulate(reversed(ordered), min))[::-1]

    def scaled_to(self, batch: int) -> tuple[float, Measured] | None:
        """Least time that other batches suggest for this one, and who suggests it."""
        found = []
        below = bisect_left(self._batches, batch)
        if below:
            source = self._below[below - 1]
            found.append((source.time_ms * batch / source.batch, source))
        above = bisect_right(self._batches, batch)
        if above < len(self._batches):
            source = self._above[above]
            found.append((source.time_ms, source))
        return min(found, default=None)


def _less_for_an_image(one: Measured, other: Measured) -> Measured:
    return min(one, other, key=lambda measured: measured.time_ms / measured.batch)


def check_neighbours(
    records: Sequence[AuditedRecord], setting: AuditSetting
) -> Iterator[Suspicion]:
    """Find entries far slower than at another batch, and naive winners that shouldn't win."""
    by_model = [_naive_by_model(audited) for audited in records]
    for indexes in _shapes(records):
        neighbours = [
            (index, records[index].problem.batch, list(_plausible(records[index], setting)))
            for index in indexes
        ]
        times: dict[str, list[Measured]] = defaultdict(list)
        for _, batch, plausible in neighbours:
            for item in plausible:
                times[item.solver].append(Measured(item.time_ms, batch))
        series = {solver: Series(some) for solver, some in times.items() if len(some) > 1}
        for index, batch, plausible in neighbours:
            for item in plausible:
                known = series.get(item.solver)
                if known and (detail := _slow_by_neighbour(item, batch, known)):
                    yield Suspicion(index, item, "batch", detail)
        doubtful = [index for index in indexes if not by_model[index] and _has_won(records[index])]
        if doubtful:
            fast = Series(
                one for solver, some in times.items() if not is_naive(solver) for one in some
            )
            for index in doubtful:
                by_model[index] = _naive_by_neighbour(records[index], fast)
    for index, detail in enumerate(by_model):
        best = records[index].best
        if detail and best:
            yield Suspicion(index, best, "naive", detail)


def _has_won(audited: AuditedRecord) -> bool:
    """Whether a naive solver won."""
    return audited.best is not None and is_naive(audited.best.solver)


def _slow_by_neighbour(item: FindItem, batch: int, series: Series) -> str:
    """Say how much faster the same solver was at another batch; empty if it wasn't."""
    found = series.scaled_to(batch)
    if not found or item.time_ms <= max(TOO_SLOW * found[0], found[0] + LAUNCH_MS):
        return ""
    source = found[1]
    return f"{item.time_ms:g} ms for N {batch}, {source.time_ms:g} ms for N {source.batch}"


def _naive_by_model(audited: AuditedRecord) -> str:
    """Say why the model doesn't believe a naive winner; empty if it does."""
    best, expected = audited.best, audited.expected
    if (
        best is None
        or expected is None
        or not _has_won(audited)
        or is_naive(expected.solver)
        or not expected.sure
        or not _halves(expected.time_ms, best.time_ms)
    ):
        return ""
    return f"{best.time_ms:g} ms, the model expects {expected.time_ms:.4g} ms of {expected.solver}"


def _naive_by_neighbour(audited: AuditedRecord, fast: Series) -> str:
    """Say how fast others were at another batch where a naive solver won; empty if they weren't."""
    best = audited.best
    if best is None:
        return ""
    found = fast.scaled_to(audited.problem.batch)
    if not found or not _halves(found[0], best.time_ms):
        return ""
    source = found[1]
    return (
        f"{best.time_ms:g} ms for N {audited.problem.batch}, "
        f"another solver {source.time_ms:g} ms for N {source.batch}"
    )


def _halves(other_ms: float, naive_ms: float) -> bool:
    return other_ms < FASTER_THAN_NAIVE * naive_ms and other_ms + LAUNCH_MS < naive_ms


def _plausible(audited: AuditedRecord, setting: AuditSetting) -> Iterator[FindItem]:
    """Items of a record that others may be held against."""
    for item in audited.record.items:
        if item.time_ms > 0:
            least = None
            if setting.device is not None:
                family = item.algorithm.rpartition("Algo")[2]
                least = least_ms(audited.problem, item.solver, family, setting.device)
            if least is None or item.time_ms >= least:
                yield item


def _shapes(records: Sequence[AuditedRecord]) -> list[list[int]]:
    """Group records that differ in their batch alone, where there are several."""
    shapes: dict[str, list[int]] = defaultdict(list)
    for index, audited in enumerate(records):
        fields = audited.record.key.split("-")
        fields[7 if audited.problem.ndim == 2 else 9] = "N"
        shapes["-".join(fields)].append(index)
    return [indexes for indexes in shapes.values() if len(indexes) > 1]
