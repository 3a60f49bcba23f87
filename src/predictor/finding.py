"""The rungs of the ladder that measure: a model's best candidates, or all that a budget allows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from foretune.kernels.measure import MeasureOptions
from foretune.kernels.problem import Problem
from foretune.kernels.problem_text import format_problem
from foretune.kernels.registry import solver
from foretune.kernels.runtime.device import Device
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.search import ConfigSearch
from foretune.kernels.solver import Candidate, Solver
from foretune.kernels.space import Config
from foretune.kernels.task import Pace, Task
from foretune.kernels.visiting import kernels_of
from foretune.predictor.system_database import solver_order
from foretune.predictor.trials import SERVER, TIMEOUT, Trial, Trials

#: Candidates of a model that are measured at most.
_MOST_TOP = 8
#: What one costs in milliseconds beside its runs: to start the child, to build one that isn't
#: built (by one processor), to check and time one.
_START_MS, _BUILD_MS, _TRY_MS = 800.0, 800.0, 40.0
#: Runs of one candidate.
_RUNS = 15
#: Configs of a find's later batches.
_BATCH = 4

Allowed = Callable[[Solver[Any], Config], bool]


@dataclass
class FindResult:
    """What a full find gave.

    Attributes
    ----------
    trials : dict of str to Trial
        By the candidates' keys.
    left_out : dict of str to str
        Solvers that can't compute the problem, with their reasons.
    is_complete : bool
        Whether every applicable solver was tried.
    """

    trials: dict[str, Trial] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    is_complete: bool = False


class Finder:
    """Measures the candidates of one device after another problem's.

    Parameters
    ----------
    name : str
        Of the device, for child processes.
    device : Device
    server : str, optional
        What the child runs.
    options : MeasureOptions, optional
    timeout : float, optional
        Seconds after which a candidate counts as hung.
    """

    def __init__(
        self,
        name: str,
        device: Device,
        *,
        server: str = SERVER,
        options: MeasureOptions | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        self._properties = device.properties
        self._executor = Executor(device)
        self._workers = _processors()
        self._trials = Trials(
            name, self._executor, self._workers, server=server, options=options, timeout=timeout
        )

    def is_built(self, problem: Problem, candidate: Candidate[Any]) -> bool:
        """Whether a candidate can run without a compiler."""
        return all(map(self._executor.is_built, kernels_of(problem, candidate)))

    def affordable(
        self,
        problem: Problem,
        candidates: Sequence[Candidate[Any]],
        predicted: Mapping[str, float],
        budget_ms: float,
    ) -> list[Candidate[Any]]:
        """Give the first candidates that a budget has time to build and to measure, two at least.

        Parameters
        ----------
        problem : Problem
        candidates : sequence of Candidate
            The best first.
        predicted : mapping
            Expected milliseconds by the candidates' keys.
        budget_ms : float
        """
        chosen: list[Candidate[Any]] = []
        spent = _START_MS
        for candidate in candidates[:_MOST_TOP]:
            spent += _TRY_MS + _RUNS * predicted.get(candidate.key, 0.0)
            if not self.is_built(problem, candidate):
                spent += _BUILD_MS / self._workers
            if spent > budget_ms and len(chosen) >= 2:
                break
            chosen.append(candidate)
        return chosen

    def measure(
        self,
        problem: Problem,
        candidates: Sequence[Candidate[Any]],
        predicted: Mapping[str, float],
        budget_ms: float,
    ) -> dict[str, Trial]:
        """Measure some candidates, in their order, for as long as the budget lasts."""
        task = Task(problem, format_problem(problem), {}, None)
        batches = [candidates]
        until = time.monotonic() + 1e-3 * budget_ms
        return self._trials.run(task, lambda: batches.pop() if batches else (), until, predicted)

    def find(
        self,
        problem: Problem,
        first: Sequence[Candidate[Any]],
        predicted: Mapping[str, float],
        budget_ms: float,
        allowed: Allowed,
    ) -> FindResult:
        """Measure the default of every solver, then what looks good, while the budget lasts.

        Parameters
        ----------
        problem : Problem
        first : sequence of Candidate
            A model's best, tried along with the defaults.
        predicted : mapping
        budget_ms : float
        allowed : callable
            Takes a solver and a config: whether it may be tried.
        """
        result = FindResult()
        searches = {}
        # The best first, because time may end before all were tried.
        for name in solver_order(self._properties.arch, problem.operation):
            known = solver(problem.operation, name)
            reason = known.why_not(problem, self._properties)
            if reason is not None:
                result.left_out[known.id] = reason
                continue
            space = known.space(problem, self._properties)
            searches[known] = ConfigSearch(space, _bound(allowed, known))
        task = Task(problem, format_problem(problem), searches, None, _Suggested(first))
        until = time.monotonic() + 1e-3 * budget_ms
        defaults: list[Candidate[Any]] = []

        def propose() -> Sequence[Candidate[Any]]:
            batch = task.propose(_BATCH)
            if not defaults:
                defaults.extend(batch)
            return batch

        result.trials = self._trials.run(task, propose, until, predicted)
        result.is_complete = all(one.key in result.trials for one in defaults)
        return result

    def close(self) -> None:
        """End the child processes."""
        self._trials.close()
        self._executor.close()


class _Suggested:
    """Chooses what a model suggested, after the defaults."""

    def __init__(self, candidates: Sequence[Candidate[Any]]) -> None:
        self._left = list(candidates)

    def choose(self, task: Task, count: int, pace: Pace) -> list[Candidate[Any]]:  # noqa: ARG002
        """Give the next ones that were not tried yet."""
        chosen, self._left = self._left[:count], self._left[count:]
        return [
            one
            for one in chosen
            if one.solver in task.searches
            if not task.searches[one.solver].is_proposed(one.config)
        ]


def _bound(allowed: Allowed, known: Solver[Any]) -> Callable[[Config], bool]:
    return lambda config: allowed(known, config)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
