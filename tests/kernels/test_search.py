"""Which configs are proposed."""

from __future__ import annotations

from itertools import islice
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.registry import naive_solver
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.search import ConfigSearch
from foretune.kernels.solver import Candidate
from foretune.kernels.space import Config, Constraint, Space, Tunable
from foretune.kernels.task import Pace, Task


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    names = ("A", "B", "C")[: draw(st.integers(1, 3))]
    tunables = []
    for name in names:
        values = tuple(sorted(draw(st.sets(st.sampled_from((1, 2, 4, 8, 16)), min_size=1))))
        tunables.append(Tunable(name, values, values[0]))
    limit = draw(st.integers(1, 256))
    # The default, all smallest, always holds.
    least = sum(tunable.default for tunable in tunables)
    constraint = Constraint(names, lambda *values: sum(values) <= limit + least, "too much")
    return Space(tuple(tunables), (constraint,))


@settings(deadline=None, max_examples=60)
@given(spaces(), st.lists(st.integers(0, 5), max_size=6), st.integers(0, 3))
def test_every_config_is_proposed_once(space: Space, counts: list[int], seed: int) -> None:
    search = ConfigSearch(space, seed=seed)
    proposed: list[Config] = []
    for count in counts:
        some = search.propose(count)
        assert len(some) <= count
        for config in some:
            search.tell(config, float(sum(config.values())))
        proposed += some
    proposed += search.propose(10_000)
    assert search.propose(1) == []
    assert len(proposed) == len(set(proposed)) == len(space) == search.size
    assert set(proposed) == set(space)
    assert proposed[0] == space.default


def test_neighbours_of_the_fastest_come_soon() -> None:
    values = (1, 2, 4, 8, 16, 32, 64, 128)
    space = Space(tuple(Tunable(name, values, 1) for name in "ABC"))

    def time_of(config: Config) -> float:
        return 1.0 + sum(abs(space.encode(config)[place] - 5) for place in range(3))

    search = ConfigSearch(space)
    for _ in range(60):
        for config in search.propose(1):
            search.tell(config, time_of(config))
    # 60 of 512 drawn blindly reach this in one of some forty runs.
    assert search.best_ms is not None
    assert search.best_ms <= 2.0


def test_the_order_is_one_for_all_problems() -> None:
    large = Space((Tunable("A", (1, 2, 4, 8), 1), Tunable("B", (1, 2, 4, 8, 16), 1)))
    small = Space(
        large.tunables, (Constraint(("A", "B"), lambda a, b: a * b <= 32, "more than 32"),)
    )
    first = ConfigSearch(large).propose(20)
    second = ConfigSearch(small).propose(20)
    assert second == [config for config in first if config in small]
    assert ConfigSearch(large, seed=1).propose(20) != first


def test_what_is_not_allowed_is_not_proposed_and_what_is_given_back_is() -> None:
    space = Space((Tunable("A", (1, 2, 4, 8), 1),))
    search = ConfigSearch(space, lambda config: config["A"] != 4)
    first = search.propose(2)
    search.give_back(first[1])
    assert search.propose(1) == [first[1]]
    assert {config["A"] for config in islice([*first, *search.propose(9)], 9)} == {1, 2, 8}


def test_failures_are_counted() -> None:
    search = ConfigSearch(Space((Tunable("A", (1, 2), 1),)))
    for config in search.propose(2):
        search.tell(config, None)
    assert (search.tried, search.failures, search.best_ms) == (2, 2, None)


def large_space(last: int, limit: int) -> Space:
    values = tuple(range(1, 65))
    tunables = [Tunable(name, values, 1) for name in "ABCD"]
    constraint = Constraint(("A", "B"), lambda a, b: a * b <= limit, "too much")
    return Space((*tunables, Tunable("E", tuple(range(last)), 0)), (constraint,))


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, 3))
def test_a_large_space_is_drawn_from_as_far_as_asked(counts: list[int], seed: int) -> None:
    space = large_space(3, 500)
    search = ConfigSearch(space, seed=seed)
    looked_at = search.untried(5)
    proposed = [config for count in counts for config in search.propose(count)]
    assert len(set(proposed)) == len(proposed) == sum(counts)
    assert proposed[:5] == looked_at[: len(proposed)]
    assert all(config in space for config in proposed)


def test_large_spaces_of_many_problems_begin_alike() -> None:
    first, second = (
        {config.key for config in ConfigSearch(space).propose(50)}
        for space in (large_space(3, 4096), large_space(3, 3000))
    )
    assert len(first & second) > 35
    assert ConfigSearch(large_space(3, 4096)).size == 4096


def test_what_is_untried_is_listed_and_not_proposed_once_claimed() -> None:
    space = Space((Tunable("A", (1, 2, 4, 8), 1), Tunable("B", (1, 2), 1)))
    search = ConfigSearch(space, lambda config: config["A"] != 4)
    (default,) = search.propose(1)
    listed = search.untried(20)
    assert {*listed, default} == {config for config in space if config["A"] != 4}
    assert search.untried(20) == listed
    search.claim(listed[0])
    search.tell(listed[1], None)
    assert search.untried(20) == listed[2:]
    assert (list(search.failed), dict(search.times)) == ([listed[1]], {})
    assert search.propose(20) == listed[2:]


def test_who_chooses_comes_before_the_search_and_leaves_the_rest_to_it() -> None:
    class Chooser:
        def choose(self, task: Task, count: int, pace: Pace) -> list[Candidate[Any]]:  # noqa: ARG002
            (search,) = task.searches.values()
            wanted = [config for config in search.untried(9) if config["THREADS"] == 256]
            return [Candidate(solver, config) for config in wanted]

    solver = naive_solver("conv")
    device = DeviceProperties("opencl", "", "cpu", 1, 1, 65536, 1024)
    problem = ConvProblem("F", 1, 3, (8, 8), 4, (3, 3))
    task = Task(problem, "", {solver: ConfigSearch(solver.space(problem, device))}, None, Chooser())
    default = solver.default_config(problem, device)["THREADS"]
    batches = [[candidate.config["THREADS"] for candidate in task.propose(9)] for _ in range(3)]
    assert default != 256
    assert batches[:2] == [[default], [256]]
    assert len(batches[2]) == task.tried - 2 == task.size() - 2
