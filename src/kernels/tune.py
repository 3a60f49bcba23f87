"""Exhaustive tuning: find over whole configuration spaces, for many problems, into a journal.

Problems are visited in rounds, and each visit of a round has the same share of what is left of
the budget. A visit sets its problem up once, tries a batch of new configs beside the two fastest
known ones, and ends with a race of the fastest. Batches double from round to round.

The first batch of a problem holds the default config of each solver. Later ones are shared out by
successive elimination: every solver gets configs until eight were tried, then the solver with the
fastest config so far gets half of the batch, the second a quarter, and so on; what a space has not
left goes to the others. Within a solver every other config is a neighbour of its fastest ones
(`foretune.kernels.search.ConfigSearch`). So a small budget is spent where winners are, and with
none every config of every applicable solver is tried.

Kernels are built in parallel child processes, a few visits ahead. Measuring happens in one more
child: a crash, a hang or a wrong result costs one config, which is recorded with its reason.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

from foretune.errors import InputError
from foretune.kernels.clocks import clock_facts
from foretune.kernels.journal import NOT_APPLICABLE, Journal, Trial
from foretune.kernels.measure import MeasureOptions
from foretune.kernels.problem import Problem
from foretune.kernels.problem_text import format_problem
from foretune.kernels.registry import naive_solver, solvers
from foretune.kernels.runtime.device import open_device
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.runtime.worker import Worker, WorkerDied, WorkerError
from foretune.kernels.search import ConfigSearch
from foretune.kernels.solver import Candidate, KernelSource
from foretune.kernels.task import Chooser, Pace, Task

#: What the measuring process runs.
SERVER = "foretune.kernels.measuring:serve"
#: Seconds that a candidate may take; naive solvers of large problems take several.
DEFAULT_TIMEOUT = 60.0
_FIRST_BATCH = 8
_LARGEST_BATCH = 256
#: Visits whose kernels are built together, so that all processors have some.
_LARGEST_GROUP = 8
#: Known configs that are measured again beside new ones.
_ANCHORS = 2
#: Who is within this of the fastest takes part in a visit's race, at most so many, so long.
_FINALIST = 1.3
_MOST_FINALISTS = 8
_LONGEST_RACE = 60.0


@dataclass
class TuneReport:
    """What a tuning run did.

    Attributes
    ----------
    seconds : float
        In all.
    measuring_seconds : float
        In which the measuring process had work.
    waiting_seconds : float
        In which it had none, because kernels were being built.
    compiling_seconds : float
        In which kernels were being built, mostly beside the measuring.
    built : int
        Kernels compiled.
    statuses : Counter
        Trials of this run by status.
    is_complete : bool
        Whether nothing is left to try.
    """

    seconds: float = 0.0
    measuring_seconds: float = 0.0
    waiting_seconds: float = 0.0
    compiling_seconds: float = 0.0
    built: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    is_complete: bool = False

    def facts(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "statuses": dict(self.statuses)}


def tune(
    problems: Iterable[Problem],
    journal: Journal,
    device: str = "",
    *,
    budget: float | None = None,
    sample: int | None = None,
    seed: int = 0,
    timeout: float = DEFAULT_TIMEOUT,
    workers: int | None = None,
    options: MeasureOptions | None = None,
    server: str = SERVER,
    show: Callable[[str, int, int], None] | None = None,
    chooser: Chooser | None = None,
) -> TuneReport:
    """Try configs of all applicable solvers for problems, and record every trial.

    What the journal holds of the same device, driver, compiler and version of foretune is not
    tried again, so that a run that was stopped goes on.

    Parameters
    ----------
    problems : iterable of Problem
    journal : Journal
    device : str, optional
        Default: the first GPU that is there, else "cpu".
    budget : float, optional
        Seconds. Default: until everything is tried.
    sample : int, optional
        Configs of each solver and problem at most. Default: all.
    seed : int, optional
        Chooses the order of configs.
    timeout : float, default 60
        Seconds after which a candidate counts as hung.
    workers : int, optional
        Processes that compile at a time. Default: as many as there are processors.
    options : MeasureOptions, optional
    server : str, optional
        "module:function" that the measuring process runs.
    show : callable, optional
        Takes a text, steps done and steps in all.
    chooser : Chooser, optional
        Chooses configs after the defaults, in the place of successive elimination.

    Returns
    -------
    TuneReport

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = Journal(Path(folder, "a.journal"))
    ...     report = tune([ConvProblem("F", 1, 4, (6, 6), 4, (3, 3))], journal, "cpu", sample=1)
    ...     report.is_complete, report.statuses["measured"] > 0
    (True, True)
    """
    tuner = _Tuner(journal, device, seed, sample, timeout, workers, options, server, show, chooser)
    try:
        return tuner.run(list(problems), budget)
    finally:
        tuner.close()


@dataclass
class _Visit:
    """A batch of configs for one problem."""

    task: Task
    candidates: list[Candidate[Any]]
    #: Visits of the round from this one on.
    left: int
    failures: Future[dict[KernelSource, str]] | None = None


class _Tuner:
    """One tuning run under way."""

    def __init__(
        self,
        journal: Journal,
        device: str,
        seed: int,
        sample: int | None,
        timeout: float,
        workers: int | None,
        options: MeasureOptions | None,
        server: str,
        show: Callable[[str, int, int], None] | None,
        chooser: Chooser | None,
    ) -> None:
        if sample is not None and sample < 1:
            raise InputError(f"expected at least 1, got {sample}", "sample")
        if not 0 < timeout < inf:
            raise InputError(f"expected seconds above 0, got {timeout}", "timeout")
        self._journal = journal
        self._seed = seed
        self._sample = sample
        self._timeout = timeout
        self._workers = workers or len(os.sched_getaffinity(0))
        self._show = show
        self._chooser = chooser
        self._executor = Executor(open_device(device))
        self._properties: DeviceProperties = self._executor.device.properties
        self._worker = Worker(server, device, asdict(options or MeasureOptions()))
        self._builder = ThreadPoolExecutor(1)
        self._is_stopping = False
        self._report = TuneReport()
        self._start = time.monotonic()
        self._until = float("inf")
        self._total = 0
        self._done = 0
        #: Whether the measuring process has the problem of the visit set up.
        self._is_open = False
        #: Keys of candidates that the measuring process has in its race.
        self._entered: dict[str, dict[str, Any]] = {}

    def close(self) -> None:
        """End all processes."""
        self._is_stopping = True
        self._builder.shutdown(cancel_futures=True)
        self._worker.close()
        self._executor.close()

    def run(self, problems: Sequence[Problem], budget: float | None) -> TuneReport:
        """Visit problems until all is tried or the budget is spent."""
        if budget is not None:
            if not budget > 0:
                raise InputError(f"expected seconds above 0, got {budget}", "budget")
            self._until = self._start + budget
        try:
            self._worker.call({"do": "describe"}, self._timeout)
        except WorkerError as error:
            raise RuntimeError(f"the measuring process doesn't start: {error.reason}") from None
        self._journal.use_device(self._properties)
        facts = {
            "budget": budget,
            "sample": self._sample,
            "seed": self._seed,
            "workers": self._workers,
            "problems": len(problems),
            "clocks_before": clock_facts(self._properties),
        }
        session = self._journal.begin_session(facts)
        tasks = [self._task(problem) for problem in problems]
        self._done = sum(task.tried for task in tasks)
        if budget is None:
            self._total = sum(task.size() for task in tasks)
        for visit in self._built(self._visits(tasks)):
            self._visit(visit)
            self._count_time()
            self._journal.update_session(session, {**facts, **self._report.facts()})
        self._report.is_complete = not any(task.propose(1) for task in tasks)
        self._count_time()
        facts["clocks_after"] = clock_facts(self._properties)
        self._journal.update_session(session, {**facts, **self._report.facts()})
        return self._report

    def _count_time(self) -> None:
        self._report.seconds = time.monotonic() - self._start
        self._report.built = self._executor.built

    def _pace(self) -> Pace:
        report = self._report
        return Pace(
            report.compiling_seconds / max(1, self._executor.built),
            report.measuring_seconds / max(1, report.statuses.total()),
        )

    def _task(self, problem: Problem) -> Task:
        """Collect what can compute a problem, and what the journal knows of it."""
        text = format_problem(problem)
        known = {(trial.solver, trial.config): trial for trial in self._journal.trials(text)}
        naive = naive_solver(problem.operation)
        task = Task(problem, text, {}, self._sample, self._chooser)
        for solver in sorted(solvers(problem.operation), key=lambda known: known is naive):
            reason = solver.why_not(problem, self._properties)
            if reason is not None:
                if (solver.id, "") not in known:
                    self._journal.record(Trial(text, solver.id, "", NOT_APPLICABLE, reason))
                continue
            space = solver.space(problem, self._properties)
            task.searches[solver] = search = ConfigSearch(space, seed=self._seed)
            own = [trial for (name, _), trial in known.items() if name == solver.id]
            for trial in [trial for trial in own if trial.status != NOT_APPLICABLE]:
                # Spaces may have changed between two states of one version.
                with suppress(InputError):
                    candidate = Candidate(solver, space.parse(trial.config))
                    search.tell(candidate.config, trial.time_ms)
                    task.given[solver.id] += 1
                    if trial.status == "measured" and trial.time_ms is not None:
                        task.learn(candidate, trial.time_ms, trial.samples)
        return task

    def _visits(self, tasks: Sequence[Task]) -> Iterator[_Visit]:
        """Give rounds of visits; each visit's batch is chosen when it is asked for."""
        batch = _FIRST_BATCH
        live = list(tasks)
        while live:
            # Those of which least is known first, where an earlier run was stopped in a round.
            live.sort(key=lambda task: task.tried)
            still = []
            for place, task in enumerate(live):
                candidates = task.propose(batch, self._pace())
                if candidates:
                    still.append(task)
                    yield _Visit(task, candidates, len(live) - place)
            live = still
            batch = min(2 * batch, _LARGEST_BATCH)

    def _built(self, visits: Iterator[_Visit]) -> Iterator[_Visit]:
        """Build the kernels of the next visits while some are measured; stop when time is up."""
        groups = _groups(visits)
        coming = self._build(next(groups, []))
        while coming and time.monotonic() < self._until:
            group, coming = coming, self._build(next(groups, []))
            for place, visit in enumerate(group):
                if time.monotonic() >= self._until:
                    coming = group[place:] + coming
                    break
                yield visit
        for visit in coming:
            for candidate in visit.candidates:
                visit.task.give_back(candidate)

    def _build(self, group: list[_Visit]) -> list[_Visit]:
        failures = self._builder.submit(self._build_kernels, group)
        for visit in group:
            visit.failures = failures
        return group

    def _build_kernels(self, group: list[_Visit]) -> dict[KernelSource, str]:
        wanted = (
            _kernels(visit.task.problem, candidate)
            for visit in group
            for candidate in visit.candidates
        )
        kernels = list(dict.fromkeys(kernel for few in wanted for kernel in few))
        failures: dict[KernelSource, str] = {}
        some = 2 * self._workers
        began = time.monotonic()
        # In parts, so that the end of the run need not wait for all.
        for place in range(0, len(kernels), some):
            if self._is_stopping or time.monotonic() >= self._until:
                break
            failures |= self._executor.build_many(kernels[place : place + some], self._workers)
        self._report.compiling_seconds += time.monotonic() - began
        return failures

    def _visit(self, visit: _Visit) -> None:
        task = visit.task
        began = time.monotonic()
        assert visit.failures is not None
        failures = visit.failures.result()
        ready = time.monotonic()
        self._report.waiting_seconds += ready - began
        # An equal share of what is left for each problem of the round.
        until = ready + (self._until - ready) / visit.left
        if self._open(task):
            tried = self._try_all(visit, failures, until)
            self._race(task, tried, until)
        self._report.measuring_seconds += time.monotonic() - ready

    def _try_all(
        self, visit: _Visit, failures: dict[KernelSource, str], until: float
    ) -> list[Candidate[Any]]:
        """Try known fast ones, then the new; give those that were timed."""
        task = visit.task
        timed = []
        for anchor in task.fastest[:_ANCHORS]:
            if self._answer(anchor)["times"] is not None:
                timed.append(anchor)
        for place, candidate in enumerate(visit.candidates):
            if time.monotonic() >= until and place > 0:
                for rest in visit.candidates[place:]:
                    task.give_back(rest)
                break
            kernels = _kernels(task.problem, candidate)
            log = next((failures[kernel] for kernel in kernels if kernel in failures), None)
            if log is not None:
                self._record(task, candidate, {"status": "compile error", "reason": log})
            elif self._try(task, candidate):
                timed.append(candidate)
            self._tell_progress(task)
        return timed

    def _try(self, task: Task, candidate: Candidate[Any]) -> bool:
        """Measure and record a candidate; true if it has a time."""
        answer = self._answer(candidate)
        if answer["status"] == "wrong" and not self._is_sound(task):
            # Somebody before it may have spoilt the inputs: once more, with fresh ones.
            self._restart(task)
            answer = self._answer(candidate)
        self._record(task, candidate, answer)
        if not self._is_open:
            self._restart(task)
        return answer["times"] is not None

    def _is_sound(self, task: Task) -> bool:
        """Whether a candidate that was right before still is."""
        right = next((known for known in task.fastest if known.key in self._entered), None)
        return right is not None and self._answer(right)["status"] == "measured"

    def _answer(self, candidate: Candidate[Any]) -> dict[str, Any]:
        """Have a candidate tried in the measuring process, whatever happens to it."""
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
            return _failure("hung" if is_hung else "crashed", error.reason)
        except WorkerError as error:
            return _failure("failed", error.reason)
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
                self._record(task, candidate, {**entered, "times": raced}, is_new=False)

    def _open(self, task: Task) -> bool:
        """Set a problem up in the measuring process; false if that can't be done."""
        self._entered.clear()
        self._is_open = False
        try:
            # The naive solver computes the reference here, on processors for seconds.
            why_not = self._worker.call({"do": "open", "problem": task.text}, 10 * self._timeout)
        except WorkerError as error:
            answer = _failure("failed", f"the problem can't be set up: {error.reason}")
        else:
            if "why_not" not in why_not:
                self._is_open = True
                return True
            answer = _failure("out of memory", why_not["why_not"])
        for solver in task.searches:
            default = Candidate(solver, solver.default_config(task.problem, self._properties))
            self._record(task, default, answer)
        task.searches.clear()
        return False

    def _restart(self, task: Task) -> None:
        """Go on in a fresh process."""
        self._worker.close()
        if self._open(task):
            for anchor in task.fastest[:1]:
                self._answer(anchor)

    def _record(
        self,
        task: Task,
        candidate: Candidate[Any],
        answer: dict[str, Any],
        is_new: bool = True,
    ) -> None:
        times = answer.get("times") or {}
        time_ms = times.get("time_ms", answer.get("estimate_ms"))
        self._journal.record(
            Trial(
                task.text,
                candidate.solver.id,
                candidate.config.key,
                answer["status"],
                answer["reason"] or times.get("reason", ""),
                time_ms,
                times.get("low_ms"),
                times.get("high_ms"),
                times.get("samples", 0),
                times.get("repeats", 1),
                times.get("is_tied", False),
                answer.get("workspace", 0),
                answer.get("error"),
                **answer.get("facts", {}),
            )
        )
        if candidate.solver in task.searches:
            task.searches[candidate.solver].tell(candidate.config, time_ms)
        if times:
            task.learn(candidate, times["time_ms"], times["samples"])
        if is_new:
            self._report.statuses[answer["status"]] += 1
            self._done += 1

    def _tell_progress(self, task: Task) -> None:
        if self._show is None:
            return
        now = time.monotonic()
        if self._until < float("inf"):
            total = int(self._until - self._start)
            done, left = min(total, int(now - self._start)), self._until - now
            text = f"s, {self._done} trials"
        else:
            done, total = self._done, self._total
            new = max(1, self._report.statuses.total())
            left = (total - done) * (now - self._start) / new
            text = "trials"
        self._show(f"{text}, {_minutes(left)} left: {task.text}"[:100], done, total)


def _groups(visits: Iterator[_Visit]) -> Iterator[list[_Visit]]:
    """Put visits together, the first alone, then ever more, none of one problem twice."""
    size = 1
    group: list[_Visit] = []
    for visit in visits:
        if len(group) == size or any(visit.task is other.task for other in group):
            yield group
            group = []
            size = min(2 * size, _LARGEST_GROUP)
        group.append(visit)
    if group:
        yield group


def _kernels(problem: Problem, candidate: Candidate[Any]) -> list[KernelSource]:
    try:
        plan = candidate.solver.plan(problem, candidate.config)
    except Exception:  # the measuring process meets the same and tells it
        return []
    return [launch.kernel for launch in plan.launches]


def _failure(status: str, reason: str) -> dict[str, Any]:
    return {"status": status, "reason": reason, "times": None}


def _minutes(seconds: float) -> str:
    minutes = max(0, round(seconds)) // 60
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
