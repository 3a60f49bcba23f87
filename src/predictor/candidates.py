"""Ranked candidates of foretune's own kernels: what a model answers, and what asks it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from foretune.kernels.problem import Problem
from foretune.kernels.runtime.properties import DeviceProperties

#: Share of accepted picks that may be slower than 1.10 times the best known, unless told otherwise.
DEFAULT_RISK = 0.05


@dataclass(frozen=True)
class RankedCandidate:
    """A candidate with what a model thinks of it.

    Attributes
    ----------
    solver : str
        Its id.
    config : str
        Text form of the config, "" if the solver has none.
    predicted_ms : float
        Predicted time of one run.
    score : float
        Estimated probability of being within 1.10 of the best.
    """

    solver: str
    config: str
    predicted_ms: float
    score: float

    @property
    def key(self) -> str:
        """Text form, as `foretune.kernels.solver.Candidate.key`."""
        return f"{self.solver}{{{self.config}}}" if self.config else self.solver


@dataclass(frozen=True)
class CandidateRanking:
    """A model's answer for a problem on a device.

    Attributes
    ----------
    candidates : tuple of RankedCandidate
        Valid on the device and within the asker's limits, the best first.
    accepted : bool
        Whether the first may be used without measuring, at the risk that was asked for.
    reason : str
        Why it is accepted, or why not.
    beats_default : bool, default True
        Whether unmeasured picks were faster than default candidates, in the geometric mean, on
        shapes that training never saw.
    """

    candidates: tuple[RankedCandidate, ...]
    accepted: bool
    reason: str
    beats_default: bool = True


class CandidateModel(Protocol):
    """What ranks the candidates of one operation on one device or more."""

    def rank(
        self,
        problem: Problem,
        device: DeviceProperties,
        *,
        risk: float = DEFAULT_RISK,
        workspace_limit: int | None = None,
        deterministic: bool = False,
        excluded: AbstractSet[str] = frozenset(),
        top: int | None = None,
    ) -> CandidateRanking:
        """Rank the candidates of a problem.

        Parameters
        ----------
        problem : Problem
        device : DeviceProperties
        risk : float, default 0.05
            Share of accepted picks that may be slower than 1.10 times the best known.
        workspace_limit : int, optional
            Bytes that a candidate may need.
        deterministic : bool, default False
            Leave out candidates that add atomically.
        excluded : set of str
            Keys of candidates that must not be used.
        top : int, optional
            How many to give at most.
        """
        ...
