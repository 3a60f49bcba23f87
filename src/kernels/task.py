"""What a tuning run tries next for one problem."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

from foretune.kernels.problem import Problem
from foretune.kernels.search import ConfigSearch
from foretune.kernels.solver import Candidate, Solver

#: Configs that every solver gets before others are preferred.
_FAIR_TRIES = 8


@dataclass(frozen=True)
class Pace:
    """What a trial has cost so far, on average.

    Parameters
    ----------
    build_seconds : float
        To build a kernel, with all processors that build.
    trial_seconds : float
        To try a candidate whose kernels are built.
    """

    build_seconds: float = 0.0
    trial_seconds: float = 0.0


class Chooser(Protocol):
    """Chooses the candidates to try next; `foretune.predictor.active` has one that learns."""

    def choose(self, task: Task, count: int, pace: Pace) -> list[Candidate[Any]]:
        """Give candidates that were not proposed yet, at most `count`, the most promising first.

        Parameters
        ----------
        task : Task
            Whose default configs were tried, or are about to be. Its searches tell times, failures
            and what is untried.
        count : int
        pace : Pace
        """
        ...


@dataclass
class Task:
    """A problem with what is known of it.

    Parameters
    ----------
    problem : Problem
    text : str
        Canonical text of the problem.
    searches : dict
        Of each applicable solver.
    limit : int or None
        Configs of each solver at most.
    chooser : Chooser, optional
        Chooses after the default configs. When it has nothing more to choose, the rest is shared
        out by successive elimination.
    """

    problem: Problem
    text: str
    searches: dict[Solver[Any], ConfigSearch]
    limit: int | None
    chooser: Chooser | None = None
    given: Counter[str] = field(default_factory=Counter)
    known: dict[str, tuple[float, Candidate[Any], int]] = field(default_factory=dict)

    def learn(self, candidate: Candidate[Any], time_ms: float, samples: int) -> None:
        """Keep a time, unless it rests on fewer samples than the one that is there."""
        if samples >= self.known.get(candidate.key, (0.0, candidate, 0))[2]:
            self.known[candidate.key] = (time_ms, candidate, samples)

    @property
    def fastest(self) -> list[Candidate[Any]]:
        """Known candidates, the fastest first."""
        ordered = sorted(self.known.values(), key=lambda known: known[0])
        return [candidate for _, candidate, _ in ordered]

    @property
    def tried(self) -> int:
        """Configs given out, of all solvers."""
        return self.given.total()

    def room(self, solver: Solver[Any]) -> int:
        """Configs of a solver that may still be given out, if there are so many."""
        return 2**31 if self.limit is None else self.limit - self.given[solver.id]

    def propose(self, count: int, pace: Pace | None = None) -> list[Candidate[Any]]:
        """Share a batch out among the solvers; empty when nothing is left."""
        first = [solver for solver in self.searches if not self.given[solver.id]]
        chosen = [candidate for solver in first for candidate in self._take(solver, 1)]
        if chosen:
            return chosen
        if self.chooser is not None:
            for candidate in self.chooser.choose(self, count, pace or Pace()):
                if self.room(candidate.solver) > 0:
                    self.searches[candidate.solver].claim(candidate.config)
                    self.given[candidate.solver.id] += 1
                    chosen.append(candidate)
            if chosen:
                return chosen
        ranked = sorted(self.searches, key=lambda solver: self.searches[solver].best_ms or 1e30)
        if self.chooser is None:
            for solver in ranked:
                chosen += self._take(solver, _FAIR_TRIES - self.given[solver.id])
        share = count
        for solver in ranked:
            share = max(1, share // 2)
            if len(chosen) < count:
                chosen += self._take(solver, min(share, count - len(chosen)))
        for solver in ranked:
            chosen += self._take(solver, count - len(chosen))
        return chosen

    def _take(self, solver: Solver[Any], count: int) -> list[Candidate[Any]]:
        configs = self.searches[solver].propose(max(0, min(count, self.room(solver))))
        self.given[solver.id] += len(configs)
        return [Candidate(solver, config) for config in configs]

    def give_back(self, candidate: Candidate[Any]) -> None:
        """Take a proposed candidate back that was not tried."""
        search = self.searches.get(candidate.solver)
        if search is not None:
            self.given[candidate.solver.id] -= 1
            search.give_back(candidate.config)

    def size(self) -> int:
        """Configs in all."""
        sizes = (search.size for search in self.searches.values())
        return sum(size if self.limit is None else min(size, self.limit) for size in sizes)
