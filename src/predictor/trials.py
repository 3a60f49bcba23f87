"""Measuring candidates of one problem in a child process, so that bad ones cost themselves only."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from foretune.kernels.measure import MeasureOptions
from foretune.kernels.records import MeasuredCandidate
from foretune.kernels.rounds import Visit
from foretune.kernels.runtime.compiling import COMPILE_TIMEOUT
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.runtime.worker import Worker, WorkerError
from foretune.kernels.solver import Candidate, KernelSource
from foretune.kernels.task import Task
from foretune.kernels.visiting import Visitor, kernels_of

#: What the child runs.
SERVER = "foretune.kernels.measuring:serve"
#: Seconds after which a candidate counts as hung.
TIMEOUT = 20.0
#: Candidates that are tried after the end of the budget, where all before them failed.
_MORE = 2
#: Seconds without work after which the child is ended.
_IDLE = 10.0
#: What a candidate is not used for any more. What needs too much memory, or lost, is no fault.
_FAULTS = frozenset({"crashed", "hung", "wrong", "failed"})


@dataclass(frozen=True)
class Trial:
    """What became of a candidate.

    Attributes
    ----------
    candidate : Candidate
    status : str
        "measured", or what `foretune.kernels.bench.Outcome` and tuning call it.
    reason : str
        Why it isn't measured.
    measured : MeasuredCandidate or None
    """

    candidate: Candidate[Any]
    status: str
    reason: str
    measured: MeasuredCandidate | None

    @property
    def is_fault(self) -> bool:
        """Whether the candidate must not be used any more."""
        return self.status in _FAULTS


class Trials:
    """Measures on one device. The child lives on for a while, for the next problem.

    Parameters
    ----------
    device : str
        Name of the device, for the child.
    executor : Executor
        Of the same device; builds kernels ahead, in processes of its own.
    workers : int
        Kernels to build at a time.
    server : str, optional
        What the child runs, as `foretune.kernels.measuring.serve`.
    options : MeasureOptions, optional
    timeout : float, optional
        Seconds after which a candidate counts as hung.
    """

    def __init__(
        self,
        device: str,
        executor: Executor,
        workers: int,
        *,
        server: str = SERVER,
        options: MeasureOptions | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        self._executor = executor
        self._workers = workers
        self._timeout = timeout
        self._worker = Worker(
            server, device, asdict(replace(options or MeasureOptions(), by_samples=True))
        )
        self._lock = threading.Lock()
        self._alarm: threading.Timer | None = None

    def run(
        self,
        task: Task,
        propose: Callable[[], Sequence[Candidate[Any]]],
        until: float,
        predicted: Mapping[str, float] | None = None,
    ) -> dict[str, Trial]:
        """Try batches of candidates until none is proposed or time is up, one candidate at least.

        Parameters
        ----------
        task : Task
        propose : callable
            Gives the next batch; an empty one at the end.
        until : float
            Time of `time.monotonic` after which no candidate is begun.
        predicted : mapping, optional
            Expected milliseconds by the candidates' keys, to be kept beside what is measured.

        Returns
        -------
        dict
            By the candidates' keys. Who isn't in it was not tried, for want of time.
        """
        trials: dict[str, Trial] = {}
        expected = predicted or {}

        def record(
            task: Task, candidate: Candidate[Any], answer: Mapping[str, Any], _is_new: bool
        ) -> None:
            trial = _trial(task, candidate, answer, expected.get(candidate.key))
            trials[candidate.key] = trial
            search = task.searches.get(candidate.solver)
            if search is not None:
                time_ms = trial.measured.time_ms if trial.measured else answer.get("estimate_ms")
                search.tell(candidate.config, time_ms)
            if trial.measured is not None:
                task.learn(candidate, trial.measured.time_ms, trial.measured.samples)

        with self._lock:
            self._stop_alarm()
            try:
                while (batch := propose()) and (not trials or time.monotonic() < until):
                    ready, failures, until = self._build(task, batch, until)
                    visitor = Visitor(
                        self._worker,
                        self._executor.device.properties,
                        self._timeout_of(task, ready, failures),
                        record,
                    )
                    visit = Visit(task, deque(ready), 1)
                    visitor.visit(visit, failures, until)
                    for _ in range(_MORE):
                        # Somebody has to be known for good; each visit tries one at least.
                        if visit.candidates and not any(one.measured for one in trials.values()):
                            visitor.visit(visit, failures, until)
            finally:
                self._executor.close()
                self._set_alarm()
        return trials

    def close(self) -> None:
        """End the child; the next run starts another."""
        with self._lock:
            self._stop_alarm()
            self._worker.close()

    def _build(
        self, task: Task, batch: Sequence[Candidate[Any]], until: float
    ) -> tuple[list[Candidate[Any]], dict[KernelSource, str], float]:
        """Build the kernels of a batch, a few at a time.

        Gives those that there was time for, the kernels that can't be built, and the end of the
        measuring: building may take as long as the budget, and what was built is measured then.
        """
        began = time.monotonic()
        failures: dict[KernelSource, str] = {}
        ready: list[Candidate[Any]] = []
        missing = {one.key: self._missing(task, one) for one in batch}
        if not any(missing.values()):
            return list(batch), failures, until
        # The child starts meanwhile.
        starting = threading.Thread(target=self._start, daemon=True)
        starting.start()
        # Who is built already costs nothing; the others in their order.
        ready += [one for one in batch if not missing[one.key]]
        waiting = [one for one in batch if missing[one.key]]
        for place in range(0, len(waiting), self._workers):
            if ready and place and time.monotonic() >= until:
                break
            some = waiting[place : place + self._workers]
            kernels = dict.fromkeys(kernel for one in some for kernel in missing[one.key])
            failures |= self._executor.build_many(kernels, self._workers)
            ready += some
        starting.join()
        order = {one.key: place for place, one in enumerate(batch)}
        ready.sort(key=lambda one: order[one.key])
        return ready, failures, max(until, time.monotonic() + 0.5 * (until - began))

    def _start(self) -> None:
        # Whoever measures next meets the same failure, and tells it.
        with suppress(WorkerError):
            self._worker.call({"do": "describe"}, self._timeout)

    def _missing(self, task: Task, candidate: Candidate[Any]) -> list[KernelSource]:
        kernels = kernels_of(task.problem, candidate)
        return [kernel for kernel in kernels if not self._is_built(kernel)]

    def _is_built(self, kernel: KernelSource) -> bool:
        return self._executor.is_built(kernel)

    def _timeout_of(
        self,
        task: Task,
        ready: Iterable[Candidate[Any]],
        failures: Mapping[KernelSource, str],
    ) -> float:
        # Where binaries can't be kept, such as on a full disk, the child has to compile again.
        kernels = _kernels(task, ready)
        is_lost = any(k not in failures and not self._is_built(k) for k in kernels)
        return self._timeout + (COMPILE_TIMEOUT if is_lost else 0.0)

    def _set_alarm(self) -> None:
        self._alarm = threading.Timer(_IDLE, self.close)
        self._alarm.daemon = True
        self._alarm.start()

    def _stop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


def _kernels(task: Task, candidates: Iterable[Candidate[Any]]) -> list[KernelSource]:
    kernels = (kernel for one in candidates for kernel in kernels_of(task.problem, one))
    return list(dict.fromkeys(kernels))


def _trial(
    task: Task, candidate: Candidate[Any], answer: Mapping[str, Any], predicted: float | None
) -> Trial:
    times = answer.get("times")
    measured = times and MeasuredCandidate(
        candidate.solver.id,
        candidate.config.key,
        times["time_ms"],
        times["low_ms"],
        times["high_ms"],
        times["samples"],
        answer.get("workspace", 0),
        bool(candidate.solver.adds_atomically(task.problem, candidate.config)),
        predicted,
    )
    return Trial(candidate, answer["status"], answer["reason"], measured)
