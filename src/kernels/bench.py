"""A problem set up on a device: candidates are tried one by one, then race."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from foretune.kernels.check import Checker
from foretune.kernels.measure import (
    DeviceSampler,
    Measurement,
    MeasureOptions,
    Race,
    failure_reason,
)
from foretune.kernels.memory import ProblemMemory
from foretune.kernels.problem import Problem
from foretune.kernels.runtime.device import CompileError, KernelFacts, OutOfDeviceMemoryError
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.sampled_check import SampledChecker, has_samples
from foretune.kernels.solver import Candidate, Plan

#: A candidate estimated to be this many times slower than the fastest is not run at all,
_HOPELESS_ESTIMATE = 4.0
#: if it would hold the device up for so long.
_LONG_MS = 20.0
#: Runs of a part of it that have to tell so.
_PART_RUNS = 4
#: Operations per second that even bad candidates reach.
_LEAST_RATE = {"cpu": 1e9}
_LEAST_GPU_RATE = 2e10
#: Threads that keep one compute unit of a GPU busy.
_UNIT_THREADS = 2048


@dataclass(frozen=True)
class Outcome:
    """What became of a candidate.

    Parameters
    ----------
    status : str
        "measured", "too slow" (not run, by an estimate), "wrong", "out of memory",
        "compile error", "failed"; tuning adds "crashed" and "hung".
    reason : str
        Why it isn't "measured"; "" if it is.
    workspace : int
        Bytes that it needs.
    error : float or None
        Largest difference from the naive solver, where it was checked.
    estimate_ms : float or None
        What a candidate that was too slow takes at least.
    """

    status: str
    reason: str = ""
    workspace: int = 0
    error: float | None = None
    estimate_ms: float | None = None


class Bench:
    """Tries candidates of a problem and times the good ones against each other.

    Parameters
    ----------
    executor : Executor
    problem : Problem
    check : bool, default False
        Whether results are checked.
    options : MeasureOptions, optional

    Raises
    ------
    OutOfDeviceMemoryError
        If the tensors don't fit.
    """

    def __init__(
        self,
        executor: Executor,
        problem: Problem,
        *,
        check: bool = False,
        options: MeasureOptions | None = None,
    ) -> None:
        self.executor = executor
        self.problem = problem
        memory = ProblemMemory(executor.device, problem)
        try:
            self._checker = _checker(executor, problem, memory, options) if check else None
        except BaseException:
            memory.free()
            raise
        self._sampler = DeviceSampler(executor, memory)
        self.race = Race(self._sampler, options)

    def attempt(self, candidate: Candidate[Any]) -> Outcome:
        """Run a candidate for the first time; it enters the race if all is well."""
        plan = Plan(())
        try:
            plan = candidate.solver.plan(self.problem, candidate.config)
            estimate = self._hopeless_ms(candidate)
            if estimate is not None:
                reason = (
                    f"would take {estimate:.3g} ms or more, the fastest takes "
                    f"{self.race.best_ms:.3g} ms"
                )
                return Outcome("too slow", reason, plan.workspace, estimate_ms=estimate)
            self._sampler.add(candidate.key, plan)
            error = self._error(candidate)
            wrong = self._why_wrong(candidate, error)
            if wrong is not None:
                self._sampler.remove(candidate.key)
                return Outcome("wrong", wrong, plan.workspace, error)
            self.race.enter(candidate.key)
        except OutOfDeviceMemoryError as failure:
            return Outcome("out of memory", failure_reason(failure), plan.workspace)
        except CompileError as failure:
            return Outcome("compile error", failure_reason(failure), plan.workspace)
        except Exception as failure:
            # Whatever it is, a mistake of the solver's included, it is this candidate's.
            self._sampler.remove(candidate.key)
            return Outcome("failed", failure_reason(failure), plan.workspace)
        return Outcome("measured", "", plan.workspace, error)

    def facts(self, candidate: Candidate[Any]) -> KernelFacts:
        """Tell what the kernels of a candidate take, once it was attempted."""
        try:
            plan = candidate.solver.plan(self.problem, candidate.config)
        except Exception:  # its attempt has told it
            return KernelFacts()
        return self.executor.facts(plan)

    @property
    def results(self) -> dict[str, Measurement]:
        """Times so far."""
        return self.race.results

    def close(self) -> None:
        """Give all memory back."""
        if self._checker is not None:
            self._checker.free()
        self._sampler.close()

    def _hopeless_ms(self, candidate: Candidate[Any]) -> float | None:
        """Milliseconds that a candidate takes at least, if that is certain to lose; else None.

        A part of its work tells: the same problem with a batch of one, which needs no other
        kernel. Several runs have to agree, since a busy machine delays some, but not tenfold.
        """
        properties = self.executor.device.properties
        rate = _LEAST_RATE.get(properties.arch, _LEAST_GPU_RATE)
        part, best = one_of_batch(self.problem), self.race.best_ms
        if best is None or part is None:
            return None
        if 1e3 * self.problem.flops / rate < _LONG_MS:
            return None
        solver = candidate.solver
        if not solver.is_applicable(part, properties):
            return None
        if candidate.config not in solver.space(part, properties):
            return None
        plan = solver.plan(part, candidate.config)
        key = f"{candidate.key} of one"
        whole: Any = self.problem
        times = max(1.0, float(whole.batch) * filled_share(plan, properties))
        limit = max(_LONG_MS, _HOPELESS_ESTIMATE * best)
        shortest = float("inf")
        self._sampler.add(key, plan)
        try:
            for _ in range(_PART_RUNS):
                shortest = min(shortest, self._sampler.sample(key, 1))
                if not shortest * times > limit:
                    return None
                if shortest * times > 10 * limit:
                    break
        finally:
            self._sampler.remove(key)
        return shortest * times

    def _error(self, candidate: Candidate[Any]) -> float | None:
        """Largest error of two runs; the second tells on whoever writes to inputs."""
        if self._checker is None:
            return None
        errors = []
        for _ in range(2):
            self._checker.poison()
            self._sampler.run(candidate.key)
            errors.append(self._checker.error())
        return max(errors)

    def _why_wrong(self, candidate: Candidate[Any], error: float | None) -> str | None:
        if self._checker is None or error is None:
            return None
        return self._checker.why_wrong(error, getattr(candidate.solver, "fp32_tolerance", 0.0))


def _checker(
    executor: Executor, problem: Problem, memory: ProblemMemory, options: MeasureOptions | None
) -> Checker:
    if options is not None and options.by_samples and has_samples(problem):
        return SampledChecker(executor, problem, memory)
    return Checker(executor, problem, memory)


def one_of_batch(problem: Problem) -> Problem | None:
    """Give a problem with its batch cut to one; None if it has none to cut.

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> one_of_batch(ConvProblem("F", 16, 3, (8, 8), 4, (3, 3))).batch
    1
    >>> one_of_batch(ConvProblem("F", 1, 3, (8, 8), 4, (3, 3))) is None
    True
    """
    described: Any = problem
    if getattr(described, "batch", 1) <= 1:
        return None
    part: Problem = replace(described, batch=1)
    return part


def filled_share(plan: Plan, device: DeviceProperties) -> float:
    """Share of a device that a plan's largest launch keeps busy, at most 1."""
    if device.arch == "cpu":
        blocks = max(prod(launch.grid) for launch in plan.launches)
        return min(1.0, blocks / device.compute_units)
    threads = max(prod(launch.grid) * launch.kernel.threads for launch in plan.launches)
    return min(1.0, threads / (device.compute_units * _UNIT_THREADS))
