"""Timing candidates side by side, so that their order can be trusted.

Whoever goes first meets a cold clock, caches stay warm for whoever goes next, events around
kernels of microseconds read zero, and near-ties change places from run to run. Hence: every
candidate is warmed up, the cache is cleared before each sample, rounds are interleaved in changing
order, a sample too short for the clock is repeated, who is certain to lose leaves early, and the
two fastest are measured until they separate or are declared tied.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil, isfinite, sqrt
from statistics import median, quantiles
from typing import Protocol

from foretune.kernels.cache import CacheCleaner
from foretune.kernels.memory import ProblemMemory
from foretune.kernels.problem import Problem
from foretune.kernels.runtime.device import DeviceError
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.solver import Candidate, Plan

#: Runs of a sample at most.
_MOST_REPEATS = 1 << 16
#: A best run that is faster by this than the winner's median makes a candidate worth more runs.
_DOUBT = 1.1


class ClockError(RuntimeError):
    """The clock shows no time for many runs."""


class Sampler(Protocol):
    """What a race measures with: a device, or runs recorded earlier."""

    def sample(self, key: str, repeats: int) -> float:
        """Milliseconds that this many runs of a candidate took, begun on a cleared cache."""
        ...


@dataclass(frozen=True)
class MeasureOptions:
    """How carefully a race measures.

    Parameters
    ----------
    rounds : int, default 7
        Samples of each candidate that stays in the race.
    most_samples : int, default 41
        Samples of winner and runner-up after which they are tied.
    most_ms : float, default 2000.0
        Device time of all samples of one of them after which they are tied.
    least_ms : float, default 0.004
        A sample has to last as long: eight times the resolution of CUDA's and HIP's events.
    hopeless : float, default 2.0
        A candidate this many times slower than the best in its first samples leaves.
    warm_up_ms : float, default 20.0
        Work given to the device before the first sample of a race, for its clock to rise.
    by_samples : bool, default False
        Whether results, where they are checked, are compared with float64 on drawn elements
        instead of the naive solver's on all.
    """

    rounds: int = 7
    most_samples: int = 41
    most_ms: float = 2000.0
    least_ms: float = 0.004
    hopeless: float = 2.0
    warm_up_ms: float = 20.0
    by_samples: bool = False


@dataclass(frozen=True)
class Measurement:
    """Times of one candidate.

    Parameters
    ----------
    samples : tuple of float
        Milliseconds of one run, in the order in which they were taken.
    repeats : int
        Runs of a sample; all but the first found a warm cache.
    is_tied : bool
        Whether it can't be told from the fastest.
    left_early : str
        Why it left the race before the last round; "" if it didn't.

    Examples
    --------
    >>> measurement = Measurement((2.0, 1.0, 3.0))
    >>> measurement.time_ms, measurement.quartiles
    (2.0, (1.5, 2.5))
    """

    samples: tuple[float, ...]
    repeats: int = 1
    is_tied: bool = False
    left_early: str = ""

    @property
    def time_ms(self) -> float:
        """Median."""
        return median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Lower and upper quartile, the spread of the samples."""
        if len(self.samples) == 1:
            return self.samples[0], self.samples[0]
        low, _, high = quantiles(self.samples, n=4, method="inclusive")
        # Interpolation may step over its neighbours by a rounding.
        return min(low, self.time_ms), max(high, self.time_ms)

    @property
    def interval(self) -> tuple[float, float]:
        """What holds the median with about 95%, by the ranks of the samples."""
        ordered, count = sorted(self.samples), len(self.samples)
        below = int((count - 1.96 * sqrt(count)) / 2)
        above = ceil(1 + (count + 1.96 * sqrt(count)) / 2)
        return ordered[max(0, below - 1)], ordered[min(count, above) - 1]


class Race:
    """Candidates of one problem, timed against each other.

    Parameters
    ----------
    sampler : Sampler
    options : MeasureOptions, optional
    seed : int, optional
        Decides the order within the rounds.

    Examples
    --------
    >>> class Recorded:
    ...     def sample(self, key, repeats):
    ...         return {"a": 2.0, "b": 1.0, "c": 90.0}[key] * repeats
    >>> race = Race(Recorded())
    >>> for key in "abc":
    ...     race.enter(key)
    >>> race.run()
    >>> race.ranking()
    ['b', 'a', 'c']
    >>> race.results["c"].left_early
    'one run took 90 ms, the fastest candidate takes 1 ms'
    """

    def __init__(
        self, sampler: Sampler, options: MeasureOptions | None = None, seed: int = 0
    ) -> None:
        self._sampler = sampler
        self._options = options or MeasureOptions()
        self._random = random.Random(seed)
        self._samples: dict[str, list[float]] = {}
        self._first_run: dict[str, float] = {}
        self._left: dict[str, str] = {}
        self._repeats = 1
        self._tied: set[str] = set()

    def enter(self, key: str) -> None:
        """Warm a candidate up and take its first samples; it may leave the race at once.

        Raises
        ------
        ClockError
            If the clock shows no time for it.
        """
        best = self.best_ms
        limit = self._options.hopeless * (float("inf") if best is None else best)
        self._left.pop(key, None)
        self._first_run[key] = first = self._warm_up(key)
        # The first run of a kernel may be loading it; ten times covers that.
        if first > 10 * limit:
            samples = [first]
        else:
            samples = [self._sample(key)]
            # A busy machine delays some runs: three have to agree.
            while samples[-1] > limit and len(samples) < 3:
                samples.append(self._sample(key))
        self._samples[key] = samples
        if best is not None and samples[-1] > limit:
            self._left[key] = _too_slow(min(samples), best)

    def run(
        self, until: float = float("inf"), within: float = float("inf"), most: int = 1 << 30
    ) -> None:
        """Take interleaved rounds, then settle who is first.

        Only the fastest so far take part. A first sample may be lucky, so whoever comes among the
        fastest meanwhile joins, until all of them have the same number of samples.

        Parameters
        ----------
        until : float, optional
            Time of `time.monotonic` at which to stop, after the sample in hand.
        within : float, optional
            Candidates slower than the fastest by this factor don't take part,
        most : int, optional
            nor do more than so many.
        """
        is_time_left = True
        while is_time_left:
            self._readmit()
            first = self._fastest(within, most)
            behind = [key for key in first if len(self._samples[key]) < self._options.rounds]
            if not behind:
                if self._settle(until):
                    self._readmit()
                    if set(self._fastest(within, most)) - set(first):
                        continue
                break
            self._random.shuffle(behind)
            is_time_left = self._take_samples(behind, until)
            self._drop_losers()
        self._declare_ties()

    @property
    def best_ms(self) -> float | None:
        """Median of the fastest candidate; None before the first."""
        return min(map(median, self._samples.values()), default=None)

    def ranking(self) -> list[str]:
        """All candidates, the fastest first."""
        return sorted(self._samples, key=lambda key: (median(self._samples[key]), key))

    @property
    def results(self) -> dict[str, Measurement]:
        """Times of all candidates, in the order in which they entered."""
        return {
            key: Measurement(
                tuple(samples), self._repeats_of(key), key in self._tied, self._left.get(key, "")
            )
            for key, samples in self._samples.items()
        }

    def _running(self) -> list[str]:
        return [key for key in self._samples if key not in self._left]

    def _fastest(self, within: float, most: int) -> list[str]:
        times = {key: median(self._samples[key]) for key in self._running()}
        limit = within * min(times.values(), default=0.0)
        ordered = sorted(times, key=lambda key: (times[key], key))
        return [key for key in ordered[:most] if times[key] <= limit]

    def _take_samples(self, keys: Iterable[str], until: float) -> bool:
        """One sample each; false if time ran out."""
        for key in keys:
            if time.monotonic() >= until:
                return False
            self._samples[key].append(self._sample(key))
        return True

    def _warm_up(self, key: str) -> float:
        """Run once, the race's first candidate more often; milliseconds of the first run."""
        first = spent = self._sampler.sample(key, 1)
        runs = 0 if self._samples else 100
        while runs and not spent >= self._options.warm_up_ms:
            spent += self._sampler.sample(key, 1)
            runs -= 1
        return first

    def _sample(self, key: str) -> float:
        repeats = self._repeats_of(key)
        while True:
            total = self._sampler.sample(key, repeats)
            if isfinite(total) and total >= self._options.least_ms:
                return total / repeats
            if repeats >= _MOST_REPEATS:
                raise ClockError(f"the clock shows {total} ms for {repeats} runs")
            repeats *= 2
            self._share_repeats(repeats)

    def _share_repeats(self, repeats: int) -> None:
        if repeats > self._repeats:
            self._repeats = repeats
            # Samples of one run had a colder cache than those of several.
            for key, samples in self._samples.items():
                if self._repeats_of(key) > 1:
                    del samples[:-1]

    def _repeats_of(self, key: str) -> int:
        """Repetitions are shared, for a like cache, but for those whom they'd only delay."""
        is_long = 64 * self._options.least_ms < self._first_run[key] < float("inf")
        return 1 if is_long else self._repeats

    def _drop_losers(self) -> None:
        results = {
            key: self.results[key] for key in self._running() if len(self._samples[key]) >= 4
        }
        if not results:
            return
        best = min(results.values(), key=lambda result: result.time_ms)
        for key, result in results.items():
            # A busy machine delays runs and hastens none: one good run keeps a candidate.
            is_apart = min(result.samples) > best.quartiles[1]
            if is_apart and result.time_ms > 1.15 * best.time_ms:
                self._left[key] = "slower in every round"

    def _readmit(self) -> None:
        """Take back who left because of one that turned out to be slower itself."""
        times = {key: median(samples) for key, samples in self._samples.items()}
        best = min((times[key] for key in self._running()), default=0.0)
        self._left = {key: reason for key, reason in self._left.items() if times[key] > best}

    def _settle(self, until: float) -> bool:
        """Measure winner and runner-up by turns until they separate; false if time ran out."""
        while True:
            first_two = self._fastest(float("inf"), 2)
            if len(first_two) < 2:
                return True
            first, second = (self.results[key] for key in first_two)
            doubtful = self._doubtful(first_two[0])
            is_settled = first.interval[1] < second.interval[0] or (
                self._is_enough(first) and self._is_enough(second)
            )
            if is_settled and not doubtful:
                return True
            # By turns in changing order; whoever has fewer samples catches up.
            wanted = [*dict.fromkeys(doubtful if is_settled else first_two + doubtful)]
            self._random.shuffle(wanted)
            wanted.sort(key=lambda key: len(self._samples[key]))
            if not self._take_samples(wanted, until):
                return False

    def _doubtful(self, first: str) -> list[str]:
        """Name slower ones whose best run was far better: most of their runs may be delayed."""
        limit = self.results[first].time_ms / _DOUBT
        running = {key: self.results[key] for key in self._running() if key != first}
        return [
            key
            for key, result in running.items()
            if min(result.samples) < limit and not self._is_enough(result)
        ]

    def _is_enough(self, result: Measurement) -> bool:
        return (
            len(result.samples) >= self._options.most_samples
            or sum(result.samples) * result.repeats >= self._options.most_ms
        )

    def _declare_ties(self) -> None:
        results = {key: self.results[key] for key in self._running()}
        winner = min(results, key=lambda key: results[key].time_ms, default="")
        self._tied = {
            key
            for key, result in results.items()
            if key != winner and result.interval[0] <= results[winner].interval[1]
        }


class DeviceSampler:
    """Times candidates on a device.

    Parameters
    ----------
    executor : Executor
    memory : ProblemMemory
        Tensors and workspace that all of them use.
    """

    def __init__(self, executor: Executor, memory: ProblemMemory) -> None:
        self._executor = executor
        self._device = executor.device
        self._memory = memory
        self._plans: dict[str, Plan] = {}
        self._runs: dict[str, Callable[[], None]] = {}
        self._cache = CacheCleaner(self._device)

    def add(self, key: str, plan: Plan) -> None:
        """Prepare a candidate; the workspace grows if it has to.

        Raises
        ------
        CompileError, OutOfDeviceMemoryError
        """
        if self._memory.reserve_workspace(plan.workspace):
            for known, old in self._plans.items():
                self._runs[known] = self._executor.prepare(old, self._memory.buffers)
        self._runs[key] = self._executor.prepare(plan, self._memory.buffers)
        self._plans[key] = plan

    def remove(self, key: str) -> None:
        """Forget a candidate."""
        self._plans.pop(key, None)
        self._runs.pop(key, None)

    def run(self, key: str) -> None:
        """Run a candidate once, and wait."""
        self._runs[key]()
        self._device.synchronize()

    def sample(self, key: str, repeats: int) -> float:
        """Time runs, the first of which finds nothing in the cache."""
        run = self._runs[key]
        self._cache.clean()
        if repeats == 1:
            return self._device.time_ms(run)

        def several() -> None:
            for _ in range(repeats):
                run()

        return self._device.time_ms(several)

    def close(self) -> None:
        """Give the memory back, also that of the problem."""
        self._plans.clear()
        self._runs.clear()
        self._cache.close()
        self._memory.free()


def measure(
    executor: Executor,
    candidates: Iterable[Candidate[Problem]],
    problem: Problem,
    options: MeasureOptions | None = None,
    until: float = float("inf"),
) -> tuple[dict[str, Measurement], dict[str, str]]:
    """Time candidates of a problem against each other.

    Parameters
    ----------
    executor : Executor
        Where they run.
    candidates : iterable of Candidate
        Each applicable to the problem.
    problem : Problem
    options : MeasureOptions, optional
    until : float, optional
        Time of `time.monotonic` at which to stop.

    Returns
    -------
    times : dict of str to Measurement
        By the candidates' keys, the fastest first.
    failures : dict of str to str
        Reasons of those that could not be timed.

    Raises
    ------
    OutOfDeviceMemoryError
        If the tensors themselves don't fit.

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> from foretune.kernels.registry import naive_solver
    >>> from foretune.kernels.runtime.device import open_device
    >>> executor = Executor(open_device("cpu"))
    >>> problem, naive = ConvProblem("F", 1, 8, (8, 8), 8, (3, 3)), naive_solver("conv")
    >>> space = naive.space(problem, executor.device.properties)
    >>> times, failures = measure(executor, [Candidate(naive, config) for config in space], problem)
    >>> len(times), failures, all(found.time_ms > 0 for found in times.values())
    (3, {}, True)
    """
    sampler = DeviceSampler(executor, ProblemMemory(executor.device, problem))
    race = Race(sampler, options)
    failures: dict[str, str] = {}
    try:
        for candidate in candidates:
            try:
                sampler.add(candidate.key, candidate.solver.plan(problem, candidate.config))
                race.enter(candidate.key)
            except (DeviceError, ClockError) as error:
                failures[candidate.key] = failure_reason(error)
        race.run(until)
        results = race.results
        return {key: results[key] for key in race.ranking()}, failures
    finally:
        sampler.close()


def failure_reason(error: Exception) -> str:
    """First line of what went wrong, after the kind of failure."""
    words = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {words[0]}"


def _too_slow(took: float, best: float) -> str:
    return f"one run took {took:.3g} ms, the fastest candidate takes {best:.3g} ms"
