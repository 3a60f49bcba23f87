"""What a model that learns during a run chooses to measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log2
from typing import Any, ClassVar

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.search import ConfigSearch
from foretune.kernels.solver import Candidate, KernelSource, Launch, Plan, Solver
from foretune.kernels.space import Config, Space, Tunable
from foretune.kernels.task import Pace, Task
from foretune.predictor.active import ActiveChooser
from foretune.predictor.candidates import RankedCandidate

TILES = (1, 2, 4, 8, 16, 32, 64, 128)
SPACE = Space(tuple(Tunable(name, TILES, 1) for name in "ABC"))


@dataclass(frozen=True)
class Sized:
    """A problem of some size; the best tiles grow with it."""

    size: int
    kind: str = "sized"
    operation: ClassVar[str] = "sized"

    @property
    def flops(self) -> int:
        return self.size


class Tiled(Solver[Any]):
    """Has a kernel for each value of A."""

    def __init__(self, name: str, space: Space = SPACE) -> None:
        self.id = name  # type: ignore[misc]
        self.configs = space

    def why_not(self, problem: Any, device: DeviceProperties) -> str | None:  # noqa: ARG002
        return None

    def space(self, problem: Any, device: DeviceProperties) -> Space:  # noqa: ARG002
        return self.configs

    def plan(self, problem: Any, config: Config, *_: float) -> Plan:  # noqa: ARG002
        kernel = KernelSource("tiled.cl", self.id, (("A", config["A"]),))
        return Plan((Launch(kernel, (1, 1, 1), ()),))


TILED = Tiled("Tiled")


def time_of(problem: Sized, config: Mapping[str, int]) -> float:
    target = log2(problem.size)
    return 1.0 + sum(abs(log2(config[name]) - target) for name in "ABC")


def task_of(
    problem: Sized, chooser: ActiveChooser | None, limit: int | None = None, *solvers: Tiled
) -> Task:
    searches: dict[Solver[Any], ConfigSearch] = {
        solver: ConfigSearch(solver.configs) for solver in solvers or (TILED,)
    }
    return Task(problem, f"{problem}", searches, limit, chooser)


def visit(
    task: Task,
    count: int,
    pace: Pace | None = None,
    time: Callable[[Any, Mapping[str, int]], float | None] = time_of,
) -> list[Candidate[Any]]:
    batch = task.propose(count, pace)
    for candidate in batch:
        task.searches[candidate.solver].tell(candidate.config, time(task.problem, candidate.config))
    return batch


@settings(deadline=None, max_examples=15)
@given(
    st.lists(st.integers(1, 40), max_size=6),
    st.integers(0, 3),
    st.none() | st.integers(1, 30),
    st.floats(0, 0.5),
)
def test_every_candidate_is_chosen_once_whatever_fails(
    counts: list[int], seed: int, limit: int | None, failing: float
) -> None:
    small = Space(tuple(Tunable(name, TILES[:4], 1) for name in "ABC"))
    chance = np.random.default_rng(seed)
    task = task_of(
        Sized(4), ActiveChooser(seed=seed), limit, Tiled("One", small), Tiled("Two", small)
    )

    def time(problem: Any, config: Mapping[str, int]) -> float | None:
        return None if chance.random() < failing else time_of(problem, config)

    chosen: list[Candidate[Any]] = []
    for count in (*counts, *[40] * 20):
        chosen += visit(task, count, Pace(0.1, 0.1), time)
    keys = [candidate.key for candidate in chosen]
    assert len(keys) == len(set(keys)) == 2 * min(64, limit or 64) == task.tried
    assert task.propose(1) == []


def test_what_is_learnt_of_some_problems_serves_the_next() -> None:
    chooser = ActiveChooser(seed=1)
    for size in (2, 4, 16, 32, 64):
        task = task_of(Sized(size), chooser)
        for _ in range(8):
            visit(task, 8)
    batches = []
    for task in (task_of(Sized(8), chooser), task_of(Sized(8), None)):
        visit(task, 8)
        batches.append([time_of(Sized(8), candidate.config) for candidate in visit(task, 8)])
    # Nothing was seen of 8; the best of 4 and 16 are one step off in each tile.
    learnt, searched = batches
    assert np.mean(learnt) < 0.8 * np.mean(searched)


def test_few_trials_come_near_the_best() -> None:
    reached = []
    for seed in range(5):
        task = task_of(Sized(16), ActiveChooser(seed=seed))
        while task.tried < 60:
            visit(task, 8)
        reached.append(next(iter(task.searches.values())).best_ms)
    # 60 of 512 drawn blindly come to this in one of some three runs.
    assert np.median(np.array(reached, float)) <= 2.0


def test_kernels_that_are_built_come_first_where_building_is_dear() -> None:
    def new_kernels(build_seconds: float) -> int:
        task = task_of(Sized(16), ActiveChooser(seed=0))
        (search,) = task.searches.values()
        for config in search.propose(300):
            if config["A"] in (1, 2, 128):
                search.tell(config, time_of(Sized(16), config))
        task.given["Tiled"] = search.tried
        batch = task.propose(16, Pace(build_seconds, 0.01))
        return sum(candidate.config["A"] not in (1, 2, 128) for candidate in batch)

    assert new_kernels(1000.0) < new_kernels(0.0)


def test_what_an_earlier_model_ranks_first_is_tried_after_the_default() -> None:
    def prior(_problem: Any, _count: int) -> list[RankedCandidate]:
        texts = ["A=16,B=16,C=16", "A=1,B=1,C=1", "A=5,B=1,C=1", "A=32,B=16,C=16"]
        ranked = [RankedCandidate("Tiled", text, 1.0, 0.9) for text in texts]
        return [RankedCandidate("Unknown", "", 0.5, 0.9), *ranked]

    task = task_of(Sized(16), ActiveChooser(prior))
    assert [candidate.config.key for candidate in visit(task, 8)] == ["A=1,B=1,C=1"]
    # The default was tried, and 5 is no tile.
    second = [candidate.config.key for candidate in visit(task, 8)]
    assert second[:2] == ["A=16,B=16,C=16", "A=32,B=16,C=16"]
