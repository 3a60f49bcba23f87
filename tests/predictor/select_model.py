"""A small model for tests of the ladder: it ranks by solver, and knows no more."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from foretune.kernels.problem import Problem
from foretune.kernels.registry import solver
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import Candidate
from foretune.predictor.candidates import CandidateRanking, RankedCandidate
from foretune.predictor.default_candidate import fits


class OrderModel:
    """Ranks the default configs of solvers in the order of the predicted times that it is given."""

    def __init__(
        self, predicted: Mapping[str, float], accepted: bool = False, beats_default: bool = True
    ) -> None:
        self._predicted = dict(predicted)
        self._beats_default = beats_default
        self._accepted = accepted
        self.asked = 0

    def rank(
        self,
        problem: Problem,
        device: DeviceProperties,
        *,
        risk: float = 0.05,
        workspace_limit: int | None = None,
        deterministic: bool = False,
        excluded: AbstractSet[str] = frozenset(),
        top: int | None = None,
    ) -> CandidateRanking:
        self.asked += 1
        ranked = []
        for name, time_ms in sorted(self._predicted.items(), key=lambda item: item[1]):
            known: Any = solver(problem.operation, name)
            if known.why_not(problem, device) is not None:
                continue
            candidate = Candidate(known, known.default_config(problem, device))
            if candidate.key not in excluded and fits(
                candidate, problem, workspace_limit, deterministic
            ):
                ranked.append(RankedCandidate(name, candidate.config.key, time_ms, 0.5))
        is_sure = self._accepted and risk > 0
        reason = "sure" if is_sure else "not sure"
        accepted = is_sure and bool(ranked)
        return CandidateRanking(tuple(ranked[:top]), accepted, reason, self._beats_default)
