"""Measuring a batch of configs of one problem in a child process that may crash or hang."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foretune.kernels.problem import Problem
from foretune.kernels.rounds import Visit
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.runtime.worker import Caller, WorkerDied, WorkerError
from foretune.kernels.solver import Candidate, KernelSource
from foretune.kernels.task import Task

#: Known configs that are measured again beside new ones.
_ANCHORS = 2
#: Who is within this of the fastest takes part in a visit's race, at most so many, so long.
_FINALIST = 1.3
_MOST_FINALISTS = 8
_LONGEST_RACE = 60.0
#: Processes that may be lost with one candidate in hand before it is taken for the reason.
_MOST_LOSSES = 2

#: Takes a task, a candidate, what became of it, and whether it was tried for the first time.
Record = Callable[[Task, Candidate[Any], Mapping[str, Any], bool], None]


class Visitor:
    """Measures on one device.

    Parameters
    ----------
    worker : Caller
        Runs `foretune.kernels.measuring.serve`.
    properties : DeviceProperties
    timeout : float
        Seconds after which a candidate counts as hung.
    record : callable
        Keeps an outcome, in the task too.
    """

    def __init__(
        self, worker: Caller, properties: DeviceProperties, timeout: float, record: Record
    ) -> None:
        self._worker = worker
        self._properties = properties
        self._timeout = timeout
        self._record = record
        #: Whether the measuring process has the problem of the visit set up.
        self._is_open = False
        #: Answers of candidates that the measuring process has in its race.
        self._entered: dict[str, dict[str, Any]] = {}
        self._in_hand: Candidate[Any] | None = None

    def visit(self, visit: Visit, failures: Mapping[KernelSource, str], until: float) -> None:
        """Try a visit's candidates until time is up, and take those off that were tried.

        Parameters
        ----------
        visit : Visit
        failures : mapping
            Kernels that can't be built, with the reason.
        until : float
            Time of `time.monotonic`. One candidate is tried at least.

        Raises
        ------
        WorkerGone
            If the process can't be reached any more; see `blame`.
        """
        self._in_hand = None
        if self._open(visit.task):
            tried = self._try_all(visit, failures, until)
            self._race(visit.task, tried, until)

    def blame(self, visit: Visit, reason: str, losses: Counter[tuple[str, str]]) -> None:
        """Count what was in hand when the process was lost; whoever did it twice is left out.

        Parameters
        ----------
        visit : Visit
        reason : str
        losses : Counter
            By problem and candidate, of all devices.
        """
        task, candidate = visit.task, self._in_hand
        if candidate is None and self._is_open:
            return
        key = (task.text, "" if candidate is None else candidate.key)
        losses[key] += 1
        if losses[key] < _MOST_LOSSES:
            return
        reason = f"{losses[key]} measuring processes were lost with it: {reason}"
        if candidate is None:
            self._give_up(task, "crashed", reason)
        elif candidate.key in task.known:
            # It was measured before, which is worth keeping; but it is no anchor any more.
            del task.known[candidate.key]
        else:
            visit.candidates.remove(candidate)
            self._record(task, candidate, failure("crashed", reason), True)

    def _try_all(
        self, visit: Visit, failures: Mapping[KernelSource, str], until: float
    ) -> list[Candidate[Any]]:
        """Try known fast ones, then the new; give those that were timed."""
        task = visit.task
        timed = []
        for anchor in task.fastest[:_ANCHORS]:
            if self._answer(anchor)["times"] is not None:
                timed.append(anchor)
        if not self._is_open:
            self._restart(task)
        is_first = True
        while visit.candidates and self._is_open and (is_first or time.monotonic() < until):
            is_first = False
            candidate = visit.candidates[0]
            kernels = kernels_of(task.problem, candidate)
            log = next((failures[kernel] for kernel in kernels if kernel in failures), None)
            if log is not None:
                self._record(task, candidate, failure("compile error", log), True)
            elif self._try(task, candidate):
                timed.append(candidate)
            visit.candidates.popleft()
            if not self._is_open:
                self._restart(task)
        return timed

    def _try(self, task: Task, candidate: Candidate[Any]) -> bool:
        """Measure and record a candidate; true if it has a time."""
        answer = self._answer(candidate)
        if answer["status"] == "wrong" and not self._is_sound(task):
            # Somebody before it may have spoilt the inputs: once more, with fresh ones.
            self._restart(task)
            answer = self._answer(candidate) if self._is_open else answer
        self._record(task, candidate, answer, True)
        return answer["times"] is not None

    def _is_sound(self, task: Task) -> bool:
        """Whether a candidate that was right before still is."""
        right = next((known for known in task.fastest if known.key in self._entered), None)
        return right is not None and self._answer(right)["status"] == "measured"

    def _answer(self, candidate: Candidate[Any]) -> dict[str, Any]:
        """Have a candidate tried in the measuring process, whatever happens to it."""
        self._in_hand = candidate
        answer = self._ask_for(candidate)
        self._in_hand = None
        return answer

    def _ask_for(self, candidate: Candidate[Any]) -> dict[str, Any]:
        request = {
            "do": "attempt",
            "solver_id": candidate.solver.id,
            "config": candidate.config.key,
        }
        began = time.monotonic()
        try:
            answer = self._worker.call(request, self._timeout)
        except WorkerDied as error:
            self._is_open = False
            self._entered.clear()
            is_hung = time.monotonic() - began >= self._timeout
            return failure("hung" if is_hung else "crashed", error.reason)
        except WorkerError as error:
            return failure("failed", error.reason)
        if answer["status"] == "failed":
            # A device that refused once may refuse everything from then on.
            self._is_open = False
            self._entered.clear()
        elif answer["times"] is not None:
            self._entered[candidate.key] = answer
        return answer

    def _race(self, task: Task, timed: Sequence[Candidate[Any]], until: float) -> None:
        """Let the fastest of a visit race, and record their times."""
        times = {candidate.key: task.known[candidate.key][0] for candidate in timed}
        limit = _FINALIST * min(times.values(), default=0.0)
        for candidate in timed:
            # After a crash the measuring process knows nobody.
            if candidate.key not in self._entered and times[candidate.key] <= limit:
                self._answer(candidate)
        if not self._entered:
            return
        seconds = max(0.0, min(until - time.monotonic(), _LONGEST_RACE))
        request = {
            "do": "race",
            "seconds": seconds,
            "within": _FINALIST,
            "most": _MOST_FINALISTS,
        }
        try:
            results = self._worker.call(request, seconds + self._timeout)
        except WorkerError:
            return
        for candidate in timed:
            entered, raced = self._entered.get(candidate.key), results.get(candidate.key)
            if entered and raced and raced["samples"] >= task.known[candidate.key][2]:
                self._record(task, candidate, {**entered, "times": raced}, False)

    def _open(self, task: Task) -> bool:
        """Set a problem up in the measuring process; false if that can't be done."""
        self._entered.clear()
        self._is_open = False
        try:
            # The naive solver computes the reference here, on processors for seconds.
            why_not = self._worker.call({"do": "open", "problem": task.text}, 10 * self._timeout)
        except WorkerError as error:
            self._give_up(task, "failed", f"the problem can't be set up: {error.reason}")
            return False
        if "why_not" in why_not:
            self._give_up(task, "out of memory", why_not["why_not"])
            return False
        self._is_open = True
        return True

    def _restart(self, task: Task) -> None:
        """Go on in a fresh process, with somebody fast to compare with if that goes well."""
        self._worker.close()
        if self._open(task):
            for anchor in task.fastest[:1]:
                self._answer(anchor)
            if not self._is_open:
                self._worker.close()
                self._open(task)

    def _give_up(self, task: Task, status: str, reason: str) -> None:
        """Record that nothing (more) can be measured for a problem, and leave it."""
        for solver in task.searches:
            default = Candidate(solver, solver.default_config(task.problem, self._properties))
            if default.key not in task.known:
                self._record(task, default, failure(status, reason), True)
        task.searches.clear()


def kernels_of(problem: Problem, candidate: Candidate[Any]) -> list[KernelSource]:
    """Kernels that a candidate launches; none if its plan can't be made."""
    try:
        plan = candidate.solver.plan(problem, candidate.config)
    except Exception:  # the measuring process meets the same and tells it
        return []
    return [launch.kernel for launch in plan.launches]


def failure(status: str, reason: str) -> dict[str, Any]:
    """Give the answer of a candidate that has no time."""
    return {"status": status, "reason": reason, "times": None}
