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

Several devices share the problems out (`foretune.kernels.rounds`): each has a thread here and its
measuring process here or elsewhere (`foretune.kernels.fleet`). All write to the one journal.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field
from math import inf
from threading import Event, Lock, RLock
from typing import Any

from foretune.errors import InputError
from foretune.kernels.building import BuildQueue
from foretune.kernels.check import checking_kernels
from foretune.kernels.fleet import Fleet, LocalFleet, Member
from foretune.kernels.journal import NOT_APPLICABLE, Journal, Trial
from foretune.kernels.measure import MeasureOptions
from foretune.kernels.problem import Problem
from foretune.kernels.problem_text import format_problem
from foretune.kernels.registry import naive_solver, solvers
from foretune.kernels.rounds import Rounds, Visit
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.runtime.worker import Caller, WorkerError, WorkerGone
from foretune.kernels.search import ConfigSearch
from foretune.kernels.solver import Candidate, KernelSource
from foretune.kernels.task import Chooser, Pace, Task
from foretune.kernels.visiting import Visitor, kernels_of

_log = logging.getLogger(__name__)
#: What the measuring process runs.
SERVER = "foretune.kernels.measuring:serve"
#: Seconds that a candidate may take; naive solvers of large problems take several.
DEFAULT_TIMEOUT = 60.0
#: Visits whose kernels are built together, so that all processors have some.
_LARGEST_GROUP = 8
#: Known configs that a visit may measure again.
_MOST_KNOWN = 2
#: Seconds between two looks whether a lost process can be had again.
_REVIVAL = 1.0


@dataclass
class TuneReport:
    """What a tuning run did.

    Attributes
    ----------
    seconds : float
        In all.
    devices : int
        That measured.
    measuring_seconds : float
        In which the measuring processes had work, on average.
    waiting_seconds : float
        In which they had none, because kernels were being built.
    compiling_seconds : float
        In which kernels were being built, mostly beside the measuring.
    built : int
        Kernels compiled.
    statuses : Counter
        Trials of this run by status.
    losses : int
        Times that a measuring process, or its machine, was lost.
    is_complete : bool
        Whether nothing is left to try.
    """

    seconds: float = 0.0
    devices: int = 1
    measuring_seconds: float = 0.0
    waiting_seconds: float = 0.0
    compiling_seconds: float = 0.0
    built: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    losses: int = 0
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
    fleet: Fleet | None = None,
) -> TuneReport:
    """Try configs of all applicable solvers for problems, and record every trial.

    What the journal holds of the same device, driver, compiler and version of foretune is not
    tried again, so that a run that was stopped goes on.

    Parameters
    ----------
    problems : iterable of Problem
    journal : Journal
    device : str, optional
        Several are joined by commas. Default: the first GPU that is there, else "cpu".
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
    fleet : Fleet, optional
        Where to measure and to build, in the place of ``device`` and ``workers``, such as
        `foretune.kernels.cluster.ClusterFleet`. It is closed at the end.

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
    with closing(fleet or LocalFleet(device, workers)) as chosen:
        _check(budget, sample, timeout)
        run = _Run(journal, seed, sample, timeout, show, chooser)
        members = chosen.open(server, asdict(options or MeasureOptions()))
        return run.go(list(problems), members, chosen, budget)


def _check(budget: float | None, sample: int | None, timeout: float) -> None:
    if budget is not None and not budget > 0:
        raise InputError(f"expected seconds above 0, got {budget}", "budget")
    if sample is not None and sample < 1:
        raise InputError(f"expected at least 1, got {sample}", "sample")
    if not 0 < timeout < inf:
        raise InputError(f"expected seconds above 0, got {timeout}", "timeout")


class _Stopped(Exception):  # noqa: N818
    """The run is being stopped."""


class _Stoppable:
    """A measuring process whose end doesn't count as a crash when the run is being stopped."""

    def __init__(self, worker: Caller, stopping: Event) -> None:
        self._worker = worker
        self._stopping = stopping
        self.kill = worker.kill
        self.close = worker.close

    def call(self, payload: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        if self._stopping.is_set():
            raise _Stopped
        try:
            return self._worker.call(payload, timeout)
        except (WorkerError, WorkerGone):
            if self._stopping.is_set():
                raise _Stopped from None
            raise


class _OneAtATime:
    """A chooser that the threads of several devices may ask."""

    def __init__(self, chooser: Chooser) -> None:
        self._chooser = chooser
        self._lock = Lock()

    def choose(self, task: Task, count: int, pace: Pace) -> list[Candidate[Any]]:
        with self._lock:
            return self._chooser.choose(task, count, pace)


class _Run:
    """What all devices of a run share."""

    def __init__(
        self,
        journal: Journal,
        seed: int,
        sample: int | None,
        timeout: float,
        show: Callable[[str, int, int], None] | None,
        chooser: Chooser | None,
    ) -> None:
        self.journal = journal
        self.seed = seed
        self.sample = sample
        self.timeout = timeout
        self.show = show
        self.chooser = None if chooser is None else _OneAtATime(chooser)
        #: For the journal, the report and what is counted.
        self.lock = RLock()
        self.report = TuneReport()
        self.losses: Counter[tuple[str, str]] = Counter()
        self.start = time.monotonic()
        self.until = inf
        self.total = 0
        self.done = 0
        self.kinds: list[_Kind] = []
        self.stopping = Event()

    def go(
        self,
        problems: Sequence[Problem],
        members: Sequence[Member],
        fleet: Fleet,
        budget: float | None,
    ) -> TuneReport:
        """Visit problems until all is tried or the budget is spent."""
        if budget is not None:
            self.until = self.start + budget
        self.report.devices = len(members)
        facts = {
            "budget": budget,
            "sample": self.sample,
            "seed": self.seed,
            "workers": fleet.workers(),
            "problems": len(problems),
        }
        with ExitStack() as stack:
            kinds = self.kinds
            for properties in dict.fromkeys(member.properties for member in members):
                builds = BuildQueue(fleet.builder(properties), fleet.workers(), self.is_over)
                stack.callback(builds.close)
                alike = [member for member in members if member.properties == properties]
                kinds.append(_Kind(self, properties, alike, builds, problems, facts))
            self.done = sum(task.tried for kind in kinds for task in kind.tasks)
            if budget is None:
                self.total = sum(task.size() for kind in kinds for task in kind.tasks)
            self._measure()
            left = (task.propose(1) for kind in kinds for task in kind.tasks)
            self.report.is_complete = not any(left)
            for kind in kinds:
                kind.note_end()
        return self.report

    def is_over(self) -> bool:
        """Whether nothing more is to be begun."""
        return self.stopping.is_set() or time.monotonic() >= self.until

    def _measure(self) -> None:
        lanes = [_Lane(self, kind, member) for kind in self.kinds for member in kind.members]
        with ThreadPoolExecutor(len(lanes)) as threads:
            going = [threads.submit(lane.work) for lane in lanes]
            try:
                for ended in wait(going, return_when=FIRST_EXCEPTION).done:
                    ended.result()
            except BaseException:
                self.stopping.set()
                for kind in self.kinds:
                    kind.rounds.stop()
                # One may have been about to call when it was told.
                while wait(going, timeout=0).not_done:
                    for lane in lanes:
                        lane.worker.kill()
                    wait(going, timeout=0.2)
                raise

    def tell_progress(self, task: Task) -> None:
        """Show how far the run is."""
        if self.show is None:
            return
        now = time.monotonic()
        if self.until < float("inf"):
            total = int(self.until - self.start)
            done, left = min(total, int(now - self.start)), self.until - now
            text = f"s, {self.done} trials"
        else:
            done, total = self.done, self.total
            new = max(1, self.report.statuses.total())
            left = (total - done) * (now - self.start) / new
            text = "trials"
        self.show(f"{text}, {_minutes(left)} left: {task.text}"[:100], done, total)


class _Kind:
    """Devices of the same properties, with what is known of the problems on them."""

    def __init__(
        self,
        run: _Run,
        properties: DeviceProperties,
        members: Sequence[Member],
        builds: BuildQueue,
        problems: Sequence[Problem],
        facts: Mapping[str, Any],
    ) -> None:
        self._run = run
        self.properties = properties
        self.members = members
        self.builds = builds
        run.journal.use_device(properties)
        self._facts = {**facts, "devices": len(members), "clocks_before": self._clocks()}
        self._session = run.journal.begin_session(self._facts)
        self.tasks = [self._task(problem) for problem in problems]
        self.rounds = Rounds(self.tasks, len(members))

    def pace(self) -> Pace:
        """Tell what trials have cost so far."""
        with self._run.lock:
            report = self._run.report
            trials = max(1, report.statuses.total())
            return Pace(
                self.builds.seconds / max(1, self.builds.builder.built),
                report.measuring_seconds * report.devices / trials,
            )

    def note(self) -> None:
        """Write down how far the run is."""
        run, report = self._run, self._run.report
        with run.lock:
            report.seconds = time.monotonic() - run.start
            report.built = sum(kind.builds.builder.built for kind in run.kinds)
            report.compiling_seconds = sum(kind.builds.seconds for kind in run.kinds)
            run.journal.update_session(self._session, {**self._facts, **report.facts()})

    def note_end(self) -> None:
        """Write down what the run did."""
        self._facts["clocks_after"] = self._clocks()
        self.note()

    def record(
        self, task: Task, candidate: Candidate[Any], answer: Mapping[str, Any], is_new: bool
    ) -> None:
        """Keep what became of a candidate."""
        run = self._run
        with run.lock:
            run.journal.use_device(self.properties)
            times = answer.get("times") or {}
            time_ms = times.get("time_ms", answer.get("estimate_ms"))
            run.journal.record(
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
                run.report.statuses[answer["status"]] += 1
                run.done += 1
                run.tell_progress(task)

    def _clocks(self) -> dict[str, Any]:
        clocks = {member.name: member.clocks() for member in self.members}
        first = clocks[self.members[0].name]
        return first if all(other == first for other in clocks.values()) else clocks

    def _task(self, problem: Problem) -> Task:
        """Collect what can compute a problem, and what the journal knows of it."""
        run = self._run
        text = format_problem(problem)
        known = {(trial.solver, trial.config): trial for trial in run.journal.trials(text)}
        naive = naive_solver(problem.operation)
        task = Task(problem, text, {}, run.sample, run.chooser)
        for solver in sorted(solvers(problem.operation), key=lambda known: known is naive):
            reason = solver.why_not(problem, self.properties)
            if reason is not None:
                if (solver.id, "") not in known:
                    run.journal.record(Trial(text, solver.id, "", NOT_APPLICABLE, reason))
                continue
            space = solver.space(problem, self.properties)
            task.searches[solver] = search = ConfigSearch(space, seed=run.seed)
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


class _Lane:
    """One device at work."""

    def __init__(self, run: _Run, kind: _Kind, member: Member) -> None:
        self._run = run
        self._kind = kind
        self._member = member
        self.worker = _Stoppable(member.worker, run.stopping)
        self._visitor = Visitor(self.worker, kind.properties, run.timeout, kind.record)
        self._share = kind.rounds.join()
        self._group_size = 1

    def work(self) -> None:
        """Visit problems until none is left, the time is up or the device is lost."""
        with suppress(_Stopped):
            while not self._work_share() and self._revive():
                self._share = self._kind.rounds.join()

    def _work_share(self) -> bool:
        """Visit the problems of the share; false if the measuring process was lost."""
        visits = self._built()
        try:
            for visit in visits:
                try:
                    self._visit(visit)
                except WorkerGone as error:
                    with self._run.lock:
                        self._run.report.losses += 1
                        self._visitor.blame(visit, error.reason, self._run.losses)
                    _log.warning("%s was lost: %s", self._member.name, error.reason)
                    return False
                finally:
                    self._kind.rounds.finish(visit)
                self._kind.note()
            return True
        finally:
            visits.close()
            self._kind.rounds.leave(self._share)

    def _revive(self) -> bool:
        """Wait for another measuring process; false if there will be none."""
        while not (self._run.is_over() or self._kind.rounds.is_over):
            answer = self._member.revive()
            if answer is False:
                _log.warning("%s doesn't come back", self._member.name)
            if answer is not None:
                return answer
            self._run.stopping.wait(_REVIVAL)
        return False

    def _built(self) -> Generator[Visit, None, None]:
        """Build the kernels of the next visits while some are measured; stop when time is up."""
        group: deque[Visit] = deque()
        coming = self._next_group(wait=True)
        try:
            while coming:
                group, coming = coming, self._next_group()
                while group:
                    if self._run.is_over():
                        return
                    yield group.popleft()
                coming = coming or self._next_group(wait=True)
        finally:
            for visit in (*group, *coming):
                self._kind.rounds.finish(visit)

    def _next_group(self, wait: bool = False) -> deque[Visit]:
        """Put visits together, the first alone, then ever more, none of one problem twice."""
        group: deque[Visit] = deque()
        while len(group) < self._group_size and not self._run.is_over():
            texts = [visit.task.text for visit in group]
            patience = self._run.until - time.monotonic() if wait and not group else 0.0
            visit = self._kind.rounds.next(self._share, self._kind.pace(), texts, patience)
            if visit is None:
                break
            group.append(visit)
        if group:
            self._group_size = min(2 * self._group_size, _LARGEST_GROUP)
        for visit in group:
            visit.failures = self._kind.builds.submit(self._kernels(visit), self)
        return group

    def _visit(self, visit: Visit) -> None:
        run, began = self._run, time.monotonic()
        failures = visit.failures()
        self._member.supply(
            kernel for kernel in self._kernels(visit, _MOST_KNOWN) if kernel not in failures
        )
        ready = time.monotonic()
        # An equal share of what is left for each problem of the round.
        self._visitor.visit(visit, failures, ready + (run.until - ready) / visit.left)
        with run.lock:
            run.report.waiting_seconds += (ready - began) / run.report.devices
            run.report.measuring_seconds += (time.monotonic() - ready) / run.report.devices

    def _kernels(self, visit: Visit, known: int = 0) -> Iterator[KernelSource]:
        """Give the kernels that a visit takes, those of some known candidates among them."""
        problem = visit.task.problem
        yield from checking_kernels(problem, self._kind.properties)
        for candidate in (*visit.task.fastest[:known], *visit.candidates):
            yield from kernels_of(problem, candidate)


def _minutes(seconds: float) -> str:
    minutes = max(0, round(seconds)) // 60
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
