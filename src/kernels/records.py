"""Single facts that a store keeps of a problem's candidates, beside whole answers of find."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class MeasuredCandidate:
    """A candidate that was checked and timed here.

    Parameters
    ----------
    solver, config : str
    time_ms : float
        Median.
    low_ms, high_ms : float
        Quartiles.
    samples : int
        Behind the median.
    workspace : int
        Bytes of scratch memory.
    adds_atomically : bool
        Whether results may differ from run to run.
    predicted_ms : float, optional
        What a model expected; None if none was asked.

    Examples
    --------
    >>> measured = MeasuredCandidate("ConvNaive", "THREADS=64", 1.5, 1.4, 1.6, 7, 0)
    >>> MeasuredCandidate.from_json(measured.to_json()) == measured
    True
    """

    solver: str
    config: str
    time_ms: float
    low_ms: float
    high_ms: float
    samples: int
    workspace: int
    adds_atomically: bool = False
    predicted_ms: float | None = None

    @property
    def key(self) -> str:
        """Text form, as `foretune.kernels.solver.Candidate.key`."""
        return f"{self.solver}{{{self.config}}}" if self.config else self.solver

    def to_json(self) -> str:
        """One line of JSON."""
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str) -> MeasuredCandidate:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class BannedCandidate:
    """A candidate that must not be used on a device any more.

    Parameters
    ----------
    key : str
        Text form of the candidate.
    problem : str
        Canonical text of the problem that showed it.
    reason : str
        How it crashed, hung, or was wrong.

    Examples
    --------
    >>> banned = BannedCandidate("ConvNaive", "conv ...", "crashed: SIGSEGV")
    >>> BannedCandidate.from_json(banned.to_json()) == banned
    True
    """

    key: str
    problem: str
    reason: str

    def to_json(self) -> str:
        """One line of JSON."""
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str) -> BannedCandidate:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class MeasuredFor:
    """What was asked for when single candidates of a problem were measured.

    Parameters
    ----------
    workspace_limit : int or None
        Bytes that candidates were allowed.
    deterministic : bool
        Whether those that add atomically were left out.
    skipped : tuple of str
        Candidates that would have been measured, had they been built.

    Examples
    --------
    >>> limited = MeasuredFor(4096, False, ("ConvNaive",))
    >>> limited.covers(100, True), limited.covers(None, False)
    (True, False)
    >>> MeasuredFor.from_json(limited.to_json()) == limited
    True
    """

    workspace_limit: int | None = None
    deterministic: bool = False
    skipped: tuple[str, ...] = ()

    def covers(self, workspace_limit: int | None, deterministic: bool) -> bool:
        """Whether what was left out for the limits then is out of these too."""
        if self.deterministic and not deterministic:
            return False
        if self.workspace_limit is None:
            return True
        return workspace_limit is not None and workspace_limit <= self.workspace_limit

    def to_json(self) -> str:
        """One line of JSON."""
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str) -> MeasuredFor:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        return cls(values["workspace_limit"], values["deterministic"], tuple(values["skipped"]))


def _to_json(record: Any) -> str:
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return json.dumps(values, separators=(",", ":"))
