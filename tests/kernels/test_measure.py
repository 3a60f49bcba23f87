"""Timing: what a clock may do to it, who leaves the race, and who is told to win."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import cycle
from statistics import median
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foretune.kernels.bench import Bench, filled_share, one_of_batch
from foretune.kernels.cache import CacheCleaner, cleaning_bytes
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.measure import ClockError, Measurement, MeasureOptions, Race, Sampler, measure
from foretune.kernels.problem_text import parse_problem
from foretune.kernels.registry import naive_solver, solver
from foretune.kernels.runtime.device import OutOfDeviceMemoryError
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import Candidate, KernelSource, Launch, Plan
from tests.kernels.faulty_server import add_operation

add_operation()

# Samples of a laptop's processor, milliseconds, in the order in which they were taken.
RECORDED = {
    "direct": (0.712, 0.705, 0.731, 0.702, 1.934, 0.708, 0.715, 0.703, 0.722, 0.706),
    "gemm": (0.951, 0.934, 0.947, 0.962, 0.938, 0.941, 1.312, 0.949, 0.936, 0.944),
    "naive": (8.431, 8.512, 8.397, 8.466, 8.702, 8.455, 8.421, 9.013, 8.433, 8.440),
}


class Recorded:
    """Replays runs that were recorded, and counts what was asked for."""

    def __init__(self, runs: Mapping[str, tuple[float, ...]], resolution: float = 0.0) -> None:
        self._runs = {key: cycle(times) for key, times in runs.items()}
        self._resolution = resolution
        self.asked: list[tuple[str, int]] = []

    def sample(self, key: str, repeats: int) -> float:
        self.asked.append((key, repeats))
        total = sum(next(self._runs[key]) for _ in range(repeats))
        if self._resolution:
            return int(total / self._resolution) * self._resolution
        return total


def raced(sampler: Sampler, keys: str | list[str], **options: Any) -> Race:
    race = Race(sampler, MeasureOptions(warm_up_ms=0.0, **options))
    for key in keys:
        race.enter(key)
    race.run()
    return race


def test_recorded_runs_are_ranked_by_their_medians() -> None:
    race = raced(Recorded(RECORDED), ["naive", "gemm", "direct"])
    assert race.ranking() == ["direct", "gemm", "naive"]
    assert 0.70 < race.results["direct"].time_ms < 0.72
    assert not race.results["gemm"].is_tied


def test_a_certain_loser_is_run_a_few_times_only() -> None:
    recorded = Recorded({"fast": (2.0,), "slow": (2000.0,), "slower": (30.0,)})
    race = raced(recorded, ["fast", "slow", "slower"])
    runs = [key for key, _ in recorded.asked]
    assert runs.count("slow") == 1
    assert runs.count("slower") == 4
    assert "one run took 2e+03 ms, the fastest candidate takes 2 ms" in (
        race.results["slow"].left_early
    )
    assert race.results["slow"].samples == (2000.0,)


def test_one_delayed_run_drops_nobody() -> None:
    race = raced(Recorded({"a": (2.0,), "b": (2.0, 9.0, 1.0, 1.0, 1.0)}), "ab")
    assert race.results["b"].left_early == ""
    assert race.ranking() == ["b", "a"]


def test_two_delayed_runs_of_three_drop_nobody() -> None:
    race = raced(Recorded({"a": (2.0,), "b": (1.0, 1.0, 3.1, 3.1, 1.0, 1.0, 1.0, 1.0)}), "ab")
    assert race.results["b"].left_early == ""
    assert race.ranking() == ["b", "a"]


def test_who_left_for_a_lucky_run_comes_back() -> None:
    runs = {"lucky": (1.0, 1.0, 9.0, 9.0, 9.0, 9.0, 9.0), "even": (4.0,)}
    race = raced(Recorded(runs), [*runs])
    assert race.results["even"].left_early == ""
    assert race.ranking() == ["even", "lucky"]


def test_rounds_are_interleaved() -> None:
    recorded = Recorded({"a": (1.0,), "b": (1.01,), "c": (1.02,)})
    raced(recorded, "abc", rounds=7)
    rounds = [key for key, _ in recorded.asked][6:]
    in_rounds = ["".join(rounds[place : place + 3]) for place in range(0, 18, 3)]
    assert all(sorted(part) == ["a", "b", "c"] for part in in_rounds[:2])
    assert len(set(in_rounds)) > 1, "the order never changes"


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_no_impossible_time_gets_through(bad: float) -> None:
    with pytest.raises(ClockError, match="for 65536 runs"):
        Race(Recorded({"a": (bad,)})).enter("a")


@settings(deadline=None, max_examples=40)
@given(st.floats(1e-5, 1e-2), st.sampled_from((0.0005, 0.001, 0.02)))
def test_short_runs_are_repeated_until_the_clock_shows_them(true: float, tick: float) -> None:
    recorded = Recorded({"a": (true,)}, resolution=tick)
    race = raced(recorded, "a", least_ms=8 * tick, rounds=2, most_samples=2)
    result = race.results["a"]
    assert result.time_ms > 0
    assert result.time_ms == pytest.approx(true, rel=0.13)
    assert recorded.asked[-1][1] == result.repeats
    assert result.repeats * true >= 7 * tick


def test_long_runs_are_not_repeated_for_the_sake_of_short_ones() -> None:
    recorded = Recorded({"short": (0.0001,), "long": (5000.0,)})
    raced(recorded, ["short", "long"])
    assert ("long", 1) in recorded.asked
    assert max(repeats for key, repeats in recorded.asked if key == "long") == 1


def test_equals_are_tied() -> None:
    generator = random.Random(1)

    same = {key: tuple(generator.gauss(1.0, 0.05) for _ in range(100)) for key in "ab"}
    race = raced(Recorded(same), "ab")
    first, second = race.ranking()
    assert race.results[second].is_tied
    assert not race.results[first].is_tied
    assert len(race.results[first].samples) >= MeasureOptions().most_samples


# The same draws every time: that most runs of the winner are delayed is rare, not impossible.
@settings(deadline=None, max_examples=50, derandomize=True)
@example([2.0, 1.0, 2.0, 2.0, 3.0], 201)
@example([5.0, 1.5, 4.0, 4.0, 4.0], 203)
@given(st.lists(st.floats(0.1, 10.0), min_size=2, max_size=8), st.integers(0, 1000))
def test_the_winner_is_the_fastest_or_as_good(true: list[float], seed: int) -> None:
    generator = random.Random(seed)

    class Noisy:
        def sample(self, key: str, repeats: int) -> float:
            delayed = 3.0 if generator.random() < 0.1 else 1.0
            return repeats * true[int(key)] * generator.uniform(1.0, 1.03) * delayed

    race = raced(Noisy(), [str(place) for place in range(len(true))])
    assert true[int(race.ranking()[0])] <= 1.08 * min(true)
    assert all(result.time_ms > 0 for result in race.results.values())


def test_time_that_is_up_ends_a_race() -> None:
    recorded = Recorded(RECORDED)
    race = Race(recorded, MeasureOptions(warm_up_ms=0.0))
    for key in RECORDED:
        race.enter(key)
    asked = len(recorded.asked)
    race.run(until=0.0)
    assert len(recorded.asked) == asked
    assert race.ranking()[0] == "direct"


@given(st.lists(st.floats(0.001, 1000.0), min_size=1, max_size=50))
def test_spreads_hold_their_median(samples: list[float]) -> None:
    result = Measurement(tuple(samples))
    assert result.time_ms == median(samples)
    low, high = result.quartiles
    assert low <= result.time_ms <= high
    assert low == pytest.approx(max(low, min(samples)))
    assert high == pytest.approx(min(high, max(samples)))
    assert result.interval[0] <= result.time_ms <= result.interval[1]


def test_real_candidates_are_timed(executor: Executor) -> None:
    problem = ConvProblem("F", 2, 8, (12, 12), 8, (3, 3))
    naive = naive_solver("conv")
    space = naive.space(problem, executor.device.properties)
    times, failures = measure(executor, [Candidate(naive, config) for config in space], problem)
    assert not failures
    assert len(times) == len(space)
    assert all(found.time_ms > 0 and len(found.samples) >= 1 for found in times.values())


def test_a_failing_candidate_costs_itself(executor: Executor) -> None:
    problem = parse_problem("faulty batch=2 size=300")
    candidates = [
        Candidate(solver("faulty", name), solver("faulty", name).space(problem, _ANY).default)
        for name in ("FaultyUnbuildable", "FaultyHungry", "FaultyGood")
    ]
    times, failures = measure(executor, candidates, problem)
    assert [key.partition("{")[0] for key in times] == ["FaultyGood"]
    assert sorted(reason.partition(":")[0] for reason in failures.values()) == [
        "CompileError",
        "OutOfDeviceMemoryError",
    ]


def test_a_wrong_candidate_is_found_out(executor: Executor) -> None:
    problem = parse_problem("faulty batch=2 size=300")
    bench = Bench(executor, problem, check=True)
    wrong = solver("faulty", "FaultyWrong")
    outcome = bench.attempt(Candidate(wrong, wrong.space(problem, _ANY).default))
    bench.close()
    assert outcome.status == "wrong"
    assert "allowed" in outcome.reason
    assert not bench.results


@pytest.mark.parametrize("dtype", ["FP32", "FP16", "BF16"])
@pytest.mark.parametrize("direction", ["F", "B", "W"])
def test_the_naive_solver_agrees_with_itself(
    executor: Executor, dtype: str, direction: str
) -> None:
    problem = ConvProblem(direction, 2, 8, (9, 9), 6, (3, 3), dtype=dtype, layout="NHWC")
    bench = Bench(executor, problem, check=True, options=MeasureOptions(warm_up_ms=0.0))
    naive = naive_solver("conv")
    config = naive.default_config(problem, executor.device.properties)
    outcome = bench.attempt(Candidate(naive, config))
    bench.close()
    assert outcome.status == "measured"
    assert outcome.error is not None
    assert outcome.error < {"FP32": 1e-6, "FP16": 1e-3, "BF16": 8e-3}[dtype]


def test_the_cache_is_cleared_by_more_than_it_holds(executor: Executor) -> None:
    properties = executor.device.properties
    assert cleaning_bytes(properties) > properties.l2_bytes
    cleaner = CacheCleaner(executor.device)
    cleaner.clean()
    executor.device.synchronize()
    cleaner.close()


def test_tensors_that_do_not_fit_are_told(executor: Executor) -> None:
    with pytest.raises(OutOfDeviceMemoryError):
        measure(executor, [], ConvProblem("F", 2**20, 2**10, (64, 64), 64, (1, 1)))


def test_a_part_has_a_batch_of_one() -> None:
    part = one_of_batch(ConvProblem("W", 7, 3, (9, 8), 4, (3, 3), stride=(2, 2)))
    assert part == ConvProblem("W", 1, 3, (9, 8), 4, (3, 3), stride=(2, 2))


def test_a_launch_that_does_not_fill_a_device_scales_less() -> None:
    kernel = KernelSource("a.cl", "a", (("THREADS", 256),))
    gpu = DeviceProperties("cuda", "H200", "sm_90", 100, 32, 49152, 1024)
    assert filled_share(Plan((Launch(kernel, (80, 1, 1), ()),)), gpu) == pytest.approx(0.1)
    assert filled_share(Plan((Launch(kernel, (80000, 1, 1), ()),)), gpu) == 1.0


_ANY = DeviceProperties("opencl", "any", "cpu", 1, 1, 1 << 15, 1024)
