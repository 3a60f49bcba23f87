"""Finding: candidates are ranked, the rest has reasons, and limits hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import foretune
from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.find import find
from foretune.kernels.found import Found
from foretune.kernels.measure import MeasureOptions
from foretune.kernels.problem import Problem
from foretune.kernels.problem_text import parse_problem
from foretune.kernels.registry import solver, solvers
from foretune.kernels.runtime.device import open_device
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.solver import KernelSource, Solver
from foretune.kernels.store import Store
from tests.kernels.faulty_server import add_operation
from tests.kernels.processor import needs_processor

pytestmark = needs_processor
add_operation()

QUICK = MeasureOptions(rounds=3, most_samples=5, warm_up_ms=1.0)
GROUPED = ConvProblem("F", 2, 8, (10, 10), 8, (3, 3), groups=8, layout="NHWC")


_CONV = ("ConvNaive", "ConvDepthwise", "ConvMatrixCoreGemm")
_HARMLESS = ("FaultyNaive", "FaultyGood", "FaultyUnbuildable", "FaultyHungry", "FaultySlow")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "found.db")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    store = Store(tmp_path_factory.mktemp("find") / "found.db")
    return find_among(_CONV, GROUPED, store, budget=20.0)


def find_among(ids: Sequence[str], problem: Problem, store: Store, **options: Any) -> Found:
    """Find among some solvers, not all of which have to be built then."""
    operation = problem.operation
    kept = tuple(known for known in solvers(operation) if known.id in ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foretune.kernels.find.solvers", {operation: kept}.__getitem__)
        return find(problem, "cpu", store=store, options=QUICK, **options)


def test_candidates_are_ranked(found: Found) -> None:
    times = [solution.time_ms for solution in found.solutions]
    assert times == sorted(times)
    assert times[0] > 0
    assert all(
        solution.low_ms <= solution.time_ms <= solution.high_ms for solution in found.solutions
    )
    assert {"ConvNaive", "ConvDepthwise"} <= {solution.solver for solution in found.solutions}
    assert found.solutions[0].samples >= QUICK.rounds
    assert not found.is_stored


def test_whoever_is_left_out_has_a_reason(found: Found) -> None:
    reasons = {left.candidate: left.reason for left in found.left_out}
    assert reasons["ConvMatrixCoreGemm"]
    assert all(reasons.values())
    solvers = {solution.solver for solution in found.solutions}
    assert not solvers & set(reasons)


def test_more_than_defaults_are_tried(found: Found) -> None:
    depthwise = [
        solution.config for solution in found.solutions if solution.solver == "ConvDepthwise"
    ]
    assert len(set(depthwise)) == len(depthwise) > 1


def test_asked_again_the_store_answers(store: Store) -> None:
    problem = parse_problem("faulty batch=2 size=64 dtype=FP16")
    first = find_good(problem, store)
    again = find_good(problem, store)
    assert again.is_stored
    assert again.solutions == first.solutions
    anew = find_good(problem, store, enforce=True)
    assert not anew.is_stored


def find_good(problem: Problem, store: Store, **options: Any) -> Found:
    """Find among solvers of the operation "faulty" that do no harm to this process."""
    return find_among(_HARMLESS, problem, store, budget=20.0, **options)


def test_failures_cost_their_candidate(store: Store) -> None:
    answer = find_good(parse_problem("faulty batch=16 size=65536"), store)
    reasons = {left.candidate.partition("{")[0]: left.reason for left in answer.left_out}
    assert reasons["FaultyHungry"].startswith("OutOfDeviceMemoryError")
    assert reasons["FaultyUnbuildable"].startswith("CompileError")
    # Never run: a sixteenth of its work told that it would lose.
    assert "would take" in reasons["FaultySlow"]
    good = [found for found in answer.solutions if found.solver == "FaultyGood"]
    assert len(good) == 5


def test_a_workspace_limit_leaves_out(store: Store) -> None:
    answer = find_good(parse_problem("faulty batch=2 size=128"), store, workspace_limit=100)
    reasons = {left.candidate.partition("{")[0]: left.reason for left in answer.left_out}
    assert reasons["FaultyHungry"] == "needs 35184372088832 bytes of workspace, the limit is 100"


def test_deterministic_leaves_out_what_adds_atomically(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = solver("faulty", "FaultyGood")
    monkeypatch.setattr(type(good), "adds_atomically", _is_good)
    problem = parse_problem("faulty batch=2 size=256 dtype=FP16")
    free = find_good(problem, store)
    assert {found.adds_atomically for found in free.solutions} == {True, False}
    strict = find_good(problem, store, deterministic=True, enforce=True)
    assert not any(found.adds_atomically for found in strict.solutions)
    assert any("adds atomically" in left.reason for left in strict.left_out)


def _is_good(solver: Solver[Any], *_: object) -> bool:
    return solver.id == "FaultyGood"


def test_a_budget_is_kept_and_something_is_found(store: Store) -> None:
    problem = replace(GROUPED, batch=3)
    answer = find_among(_CONV, problem, store, budget=1e-6)
    assert len(answer.solutions) == 1
    assert any("budget" in left.reason for left in answer.left_out)
    # What isn't whole isn't kept.
    assert store.get(problem, open_device("cpu").properties) is None


@pytest.mark.parametrize("dtype", ["INT8", "FP64"])
def test_a_type_that_nobody_computes_is_told(store: Store, dtype: str) -> None:
    with pytest.raises(InputError, match=rf"problem: no solver .* not {dtype}"):
        find(replace(GROUPED, dtype=dtype, weight_dtype=dtype, out_dtype=dtype), "cpu", store=store)


def test_a_store_that_cannot_be_used_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("work was begun")

    monkeypatch.setattr("foretune.kernels.find.Bench", refused)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="FORETUNE_CACHE"):
        find(GROUPED, "cpu", store=Store(tmp_path / "file" / "found.db"), enforce=True)


def test_no_more_is_built_than_the_budget_has_time_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    build_many = Executor.build_many

    def counted(self: Executor, wanted: Iterable[KernelSource], *options: Any) -> Any:
        kernels = list(wanted)
        asked.append(len(kernels))
        return build_many(self, kernels, *options)

    monkeypatch.setattr(Executor, "build_many", counted)
    monkeypatch.setattr("foretune.kernels.find._processors", lambda: 1)
    answer = find_among(_CONV, replace(GROUPED, batch=4), store, budget=1e-6)
    assert len(answer.solutions) == 1
    assert len(asked) == 1


def test_tensors_that_do_not_fit_are_told(store: Store) -> None:
    with pytest.raises(InputError, match="don't fit on"):
        find(ConvProblem("F", 2**20, 2**10, (64, 64), 64, (1, 1)), "cpu", store=store)


@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan")])
def test_a_budget_is_above_zero(store: Store, budget: float) -> None:
    with pytest.raises(InputError, match="budget: expected seconds above 0"):
        find(GROUPED, "cpu", budget=budget, store=store)


def test_a_workspace_limit_is_not_negative(store: Store) -> None:
    with pytest.raises(InputError, match="workspace_limit: expected bytes, got -1"):
        find(GROUPED, "cpu", workspace_limit=-1, store=store)


def test_the_public_name_takes_keys_and_lines(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretune.kernels.find._user_store", lambda: store)
    key = "8-10-10-3x3-8-8-8-2-0x0-1x1-1x1-0-NHWC-NHWC-NHWC-FP32-F_g8"
    find_among(_CONV, GROUPED, store, budget=1.0)
    answer = foretune.find(key, "cpu", budget=0.5)
    assert answer.problem == GROUPED
    assert answer.solutions
    assert answer.is_stored
    with pytest.raises(InputError, match="3 problems"):
        foretune.find("MIOpenDriver conv -F 0", "cpu")
    with pytest.raises(InputError, match="unknown device"):
        foretune.find(key, "abacus")
    with pytest.raises(InputError, match="expected a ConvProblem, a find-db key"):
        foretune.find(7, "cpu")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="device: expected a name such as 'cpu', got None"):
        foretune.find(key, None)  # type: ignore[arg-type]
