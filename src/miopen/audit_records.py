"""What the checks of an audit work on, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.devices import DeviceFacts
from foretune.miopen.find_db import FindItem, FindRecord
from foretune.miopen.inspect import NAIVE_PREFIX


@dataclass(frozen=True, slots=True)
class Expected:
    """What the model says of a problem.

    Parameters
    ----------
    solver : str
        Its pick.
    time_ms : float
        The pick's predicted time.
    sure : bool
        Whether the problem is of a kind and a size that the model has learnt.
    """

    solver: str
    time_ms: float
    sure: bool


@dataclass(frozen=True)
class AuditedRecord:
    """A record with its problem and what the model says of it.

    Parameters
    ----------
    record : FindRecord
    problem : ConvProblem
    expected : Expected, optional
        None where the model has no answer.
    """

    record: FindRecord
    problem: ConvProblem
    expected: Expected | None = None

    @cached_property
    def best(self) -> FindItem | None:
        """Item with the least time above zero."""
        timed = [item for item in self.record.items if item.time_ms > 0]
        return min(timed, key=lambda item: item.time_ms, default=None)


@dataclass(frozen=True)
class AuditSetting:
    """What the checks have to know beside the records.

    Parameters
    ----------
    arch : str
    device : DeviceFacts, optional
        None where nothing is known of the arch.
    miopen : str
        Release that reads the database, or "any".
    """

    arch: str
    device: DeviceFacts | None
    miopen: str = "any"


@dataclass(frozen=True, slots=True)
class Suspicion:
    """An entry that one check doesn't believe.

    Parameters
    ----------
    index : int
        Of the record among those checked.
    item : FindItem
    reason : str
        A name in `foretune.miopen.audit.REASONS`.
    detail : str
        The numbers that speak against it.
    """

    index: int
    item: FindItem
    reason: str
    detail: str = field(default="", compare=False)


#: A family of checks: (records, setting) -> what it doesn't believe.
Check = Callable[[Sequence[AuditedRecord], AuditSetting], Iterator[Suspicion]]


def is_naive(solver: str) -> bool:
    """Whether a solver is one of those that only compute, slowly.

    Examples
    --------
    >>> is_naive("ConvDirectNaiveConvFwd")
    True
    """
    return solver.startswith(NAIVE_PREFIX)
