"""Measuring the candidates of a problem and ranking them by time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from foretune.errors import InputError
from foretune.kernels.bench import Bench, Outcome
from foretune.kernels.found import Found, FoundSolution, LeftOut
from foretune.kernels.measure import MeasureOptions
from foretune.kernels.problem import Problem
from foretune.kernels.registry import naive_solver, solvers
from foretune.kernels.runtime.device import (
    DeviceError,
    OutOfDeviceMemoryError,
    open_device,
)
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.search import ConfigSearch
from foretune.kernels.solver import Candidate, Solver
from foretune.kernels.space import Config
from foretune.kernels.store import Store

DEFAULT_BUDGET = 10.0
#: Share of the budget after which no further config is tried, to leave time for the race.
_SEARCH_SHARE = 0.7
#: Solvers whose best config so far is slower by this are given no more tries,
_WORTHWHILE = 1.5
#: after so many.
_FAIR_TRIES = 4
#: Candidates slower than the fastest by this don't race, nor do more than so many.
_FINALIST = 1.5
_MOST_FINALISTS = 12
#: Solutions that a store keeps of an answer.
_MOST_STORED = 32


def find(
    problem: Problem,
    device: str = "",
    *,
    budget: float = DEFAULT_BUDGET,
    workspace_limit: int | None = None,
    deterministic: bool = False,
    enforce: bool = False,
    store: Store | None = None,
    options: MeasureOptions | None = None,
    show: Callable[[str, int, int], None] | None = None,
) -> Found:
    """Measure candidates for a problem and rank them by time.

    The default config of every applicable solver is tried, the naive solver's last: it is left out
    where a part of its work tells that it would lose. As long as 70% of the budget lasts, solvers
    that are within 1.5 times of the fastest then get one further config each by turns: by turns a
    neighbour of their best one and a drawn one (`foretune.kernels.search.ConfigSearch`). The
    fastest race in interleaved rounds at the end (`foretune.kernels.measure.Race`). The first
    candidate is tried whatever the budget. An answer is kept in the store if every applicable
    solver was tried.

    Parameters
    ----------
    problem : Problem
    device : str, optional
        "cpu", "cuda", "hip", "cuda:1". Default: the first GPU that is there, else "cpu".
    budget : float, default 10
        Seconds after which no new measurement is begun.
    workspace_limit : int, optional
        Bytes that a candidate may need; default: as many as the device has.
    deterministic : bool, default False
        Leave out candidates that add atomically, whose results differ from run to run.
    enforce : bool, default False
        Measure even if the store knows the answer.
    store : Store, optional
        Where answers are looked up and kept. Default: the user's.
    options : MeasureOptions, optional
    show : callable, optional
        Takes a text, tried and known candidates; for progress bars.

    Returns
    -------
    Found
        Ranked candidates, and the reasons of those left out.

    Raises
    ------
    InputError
        If there is no such device, no solver computes such a problem there, or the tensors don't
        fit on it.

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> problem = ConvProblem("F", 1, 8, (8, 8), 8, (3, 3))
    >>> found = find(problem, "cpu", budget=1, store=Store(":memory:"))
    >>> found.solutions[0].time_ms > 0
    True
    """
    if not budget > 0:
        raise InputError(f"expected seconds above 0, got {budget}", "budget")
    if workspace_limit is not None and workspace_limit < 0:
        raise InputError(f"expected bytes, got {workspace_limit}", "workspace_limit")
    executor = _kept_executor(device)
    properties = executor.device.properties
    reason = naive_solver(problem.operation).why_not(problem, properties)
    if reason is not None:
        raise InputError(f"no solver can compute this: {reason}", "problem")
    store = _user_store() if store is None else store
    # Looked up even if it isn't wanted: a store that can't be used has to say so before the work.
    known = store.get(problem, properties, workspace_limit, deterministic)
    if known is not None and not enforce:
        return known
    finding = _Finding(problem, executor, budget, workspace_limit, deterministic, options, show)
    found = finding.run()
    if finding.is_complete:
        kept = replace(found, solutions=found.solutions[:_MOST_STORED])
        store.put(kept, properties, workspace_limit, deterministic)
    return found


class _Finding:
    """One find under way."""

    def __init__(
        self,
        problem: Problem,
        executor: Executor,
        budget: float,
        workspace_limit: int | None,
        deterministic: bool,
        options: MeasureOptions | None,
        show: Callable[[str, int, int], None] | None,
    ) -> None:
        #: Whether every applicable solver was tried.
        self.is_complete = True
        self._start = time.monotonic()
        self._search_until = self._start + _SEARCH_SHARE * budget
        self._until = self._start + budget
        self._problem = problem
        self._executor = executor
        self._properties = executor.device.properties
        self._workspace_limit = workspace_limit
        self._deterministic = deterministic
        self._show = show
        self._left_out: dict[str, str] = {}
        self._candidates: dict[str, Candidate[Any]] = {}
        self._outcomes: dict[str, Outcome] = {}
        try:
            self._bench = Bench(executor, problem, options=options)
        except OutOfDeviceMemoryError as error:
            raise InputError(
                f"the tensors don't fit on {self._properties.name}: {error}", "problem"
            ) from None

    def run(self) -> Found:
        """Try, race, rank."""
        try:
            searches = self._applicable()
            self._try_defaults(searches)
            self._try_more(searches)
            with suppress(DeviceError):
                self._bench.race.run(self._until, _FINALIST, _MOST_FINALISTS)
            return self._answer()
        finally:
            self._bench.close()

    def _applicable(self) -> dict[Solver[Any], ConfigSearch]:
        naive = naive_solver(self._problem.operation)
        searches = {}
        for solver in sorted(solvers(self._problem.operation), key=lambda known: known is naive):
            reason = solver.why_not(self._problem, self._properties)
            if reason is not None:
                self._left_out[solver.id] = reason
                continue
            space = solver.space(self._problem, self._properties)
            searches[solver] = ConfigSearch(space, partial(self._is_allowed, solver))
        return searches

    def _is_allowed(self, solver: Solver[Any], config: Config) -> bool:
        candidate = Candidate(solver, config)
        if self._deterministic and solver.adds_atomically(self._problem, config):
            self._left_out[candidate.key] = "adds atomically, results differ from run to run"
            return False
        limit = self._workspace_limit
        if limit is not None:
            needed = solver.workspace_size(self._problem, config)
            if needed > limit:
                self._left_out[candidate.key] = (
                    f"needs {needed} bytes of workspace, the limit is {limit}"
                )
                return False
        return True

    def _try_defaults(self, searches: dict[Solver[Any], ConfigSearch]) -> None:
        first = {solver: search.propose(1) for solver, search in searches.items()}
        chosen = [Candidate(solver, configs[0]) for solver, configs in first.items() if configs]
        some = _processors()
        for place, candidate in enumerate(chosen):
            if time.monotonic() >= self._until and self._bench.race.best_ms is not None:
                self._left_out[candidate.key] = "the budget was spent before"
                self.is_complete = False
                continue
            # A few at a time: nothing built yet, all together can take longer than the budget.
            if place % some == 0:
                self._build(chosen[place : place + some])
            self._attempt(candidate, searches[candidate.solver])

    def _try_more(self, searches: dict[Solver[Any], ConfigSearch]) -> None:
        while time.monotonic() < self._search_until:
            best = self._bench.race.best_ms
            chosen = [
                (Candidate(solver, config), search)
                for solver, search in searches.items()
                if _is_worth_trying(search, best)
                for config in search.propose(1)
            ]
            if not chosen:
                return
            self._build([candidate for candidate, _ in chosen])
            for candidate, search in chosen:
                if time.monotonic() >= self._search_until:
                    return
                self._attempt(candidate, search)

    def _build(self, candidates: list[Candidate[Any]]) -> None:
        """Build kernels of several candidates at once; who can't be built says so when tried."""
        kernels = [
            launch.kernel
            for candidate in candidates
            for launch in candidate.solver.plan(self._problem, candidate.config).launches
        ]
        self._executor.build_many(kernels, _processors())

    def _attempt(self, candidate: Candidate[Any], search: ConfigSearch) -> None:
        if self._show is not None:
            self._show(candidate.key, len(self._outcomes), len(self._outcomes) + 1)
        outcome = self._bench.attempt(candidate)
        self._candidates[candidate.key] = candidate
        self._outcomes[candidate.key] = outcome
        measured = self._bench.results.get(candidate.key)
        if measured is not None:
            search.tell(candidate.config, measured.time_ms)
        else:
            search.tell(candidate.config, outcome.estimate_ms)
            self._left_out[candidate.key] = outcome.reason

    def _answer(self) -> Found:
        results = self._bench.results
        solutions = []
        for key in self._bench.race.ranking():
            candidate, measured = self._candidates[key], results[key]
            low, high = measured.quartiles
            solutions.append(
                FoundSolution(
                    candidate.solver.id,
                    candidate.config.key,
                    measured.time_ms,
                    low,
                    high,
                    len(measured.samples),
                    self._outcomes[key].workspace,
                    measured.is_tied,
                    bool(candidate.solver.adds_atomically(self._problem, candidate.config)),
                )
            )
        left_out = tuple(LeftOut(key, reason) for key, reason in self._left_out.items())
        seconds = time.monotonic() - self._start
        return Found(self._problem, self._properties.name, tuple(solutions), left_out, seconds)


def _is_worth_trying(search: ConfigSearch, best: float | None) -> bool:
    if best is None or search.tried < _FAIR_TRIES:
        return search.best_ms is None or best is None or search.best_ms < 4 * best
    return search.best_ms is not None and search.best_ms <= _WORTHWHILE * best


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=8)
def _kept_executor(device: str) -> Executor:
    return Executor(open_device(device))


@lru_cache(maxsize=1)
def _user_store() -> Store:
    return Store()


__all__ = ["DEFAULT_BUDGET", "Found", "FoundSolution", "LeftOut", "find"]
