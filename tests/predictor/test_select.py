"""The ladder: who answers when, what is kept, and that no fault costs an answer."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretune import log
from foretune.errors import InputError
from foretune.kernels.compute import compute
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.found import Found, FoundSolution
from foretune.kernels.measure import MeasureOptions
from foretune.kernels.problem import Problem
from foretune.kernels.problem_text import format_problem, parse_problem
from foretune.kernels.records import BannedCandidate, MeasuredCandidate
from foretune.kernels.registry import solver, solvers
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.runtime.worker import Worker
from foretune.kernels.store import Store
from foretune.predictor import select
from foretune.predictor.candidates import CandidateModel
from foretune.predictor.select import Selector
from foretune.predictor.system_database import SystemDatabase, TunedRecord, write_system_database
from tests.kernels.faulty_server import add_operation
from tests.kernels.processor import needs_processor
from tests.predictor.select_model import OrderModel

pytestmark = needs_processor
add_operation()

SERVER = "tests.kernels.faulty_server:serve"
QUICK = MeasureOptions(rounds=3, most_samples=5, warm_up_ms=1.0)
PROBLEM = ConvProblem("F", 1, 8, (9, 9), 8, (3, 3))
NAIVE, DIRECT = "ConvNaive", "ConvDirect"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "found.db")
    yield made
    made.close()


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Worker) -> None:
        raise AssertionError("a child process was started")

    monkeypatch.setattr(Worker, "_start", refuse)


#: Milliseconds that all candidates can be measured in, however busy the machine is.
PLENTY = 60_000.0


def selector_of(store: Store, model: CandidateModel | None = None, **options: Any) -> Selector:
    def model_of(_device: DeviceProperties, _operation: str) -> CandidateModel | None:
        return model

    return Selector("cpu", store=store, model_of=model_of, server=SERVER, options=QUICK, **options)


def faulty(text: str = "faulty batch=1 size=4096") -> Problem:
    return parse_problem(text)


def stored(problem: Problem, *names: str, workspace: int = 0, atomic: bool = False) -> Found:
    properties = Selector("cpu", store=Store(":memory:")).properties
    solutions = []
    for rank, name in enumerate(names, 1):
        config = solver(problem.operation, name).default_config(problem, properties).key
        solutions.append(FoundSolution(name, config, rank, rank, rank, 7, workspace, False, atomic))
    return Found(problem, properties.name, tuple(solutions))


@pytest.mark.usefixtures("no_child")
def test_a_sure_model_answers_at_once(store: Store) -> None:
    chooser = selector_of(store, OrderModel({DIRECT: 0.5, NAIVE: 3.0}, accepted=True))
    decision = chooser.choose(PROBLEM)
    assert (decision.rung, decision.solver, decision.reason) == ("model", DIRECT, "sure")
    assert [one.predicted_ms for one in decision.considered] == [0.5, 3.0]
    again = chooser.choose(PROBLEM)
    assert (again.rung, again.solver, again.config) == (
        "process cache",
        DIRECT,
        decision.config,
    )
    assert again.reason == "model: sure"


@pytest.mark.usefixtures("no_child")
def test_what_was_found_here_answers_before_the_model(store: Store) -> None:
    model = OrderModel({DIRECT: 0.5}, accepted=True)
    chooser = selector_of(store, model)
    store.put(stored(PROBLEM, NAIVE, DIRECT), chooser.properties)
    for mode in ("NORMAL", "FAST", "HYBRID", "DYNAMIC_HYBRID"):
        decision = chooser.choose(PROBLEM, mode=mode)
        assert (decision.rung, decision.solver) == ("user database", NAIVE)
        assert [one.measured_ms for one in decision.considered] == [1, 2]
    assert model.asked == 0


@pytest.mark.usefixtures("no_child")
def test_limits_hold_for_every_rung(store: Store) -> None:
    chooser = selector_of(store, OrderModel({DIRECT: 0.5}, accepted=True))
    store.put(stored(PROBLEM, NAIVE, workspace=4096, atomic=True), chooser.properties)
    assert chooser.choose(PROBLEM).solver == NAIVE
    assert chooser.choose(PROBLEM, workspace_limit=4095).rung == "model"
    assert chooser.choose(PROBLEM, deterministic=True).rung == "model"
    assert chooser.choose(PROBLEM, workspace_limit=4096).rung == "user database"
    hungry = parse_problem("faulty batch=1 size=64")
    unfit = selector_of(store, OrderModel({"FaultyHungry": 0.1, "FaultyGood": 0.2}, accepted=True))
    assert unfit.choose(hungry).solver == "FaultyHungry"
    assert unfit.choose(hungry, workspace_limit=1 << 20).solver == "FaultyGood"


@pytest.mark.usefixtures("no_child")
def test_fast_never_starts_a_process(store: Store) -> None:
    unsure = selector_of(store, OrderModel({DIRECT: 0.5}))
    decision = unsure.choose(PROBLEM, mode="FAST")
    assert (decision.rung, decision.solver) == ("model", DIRECT)
    assert "nothing may be measured" in decision.reason
    worse = selector_of(store, OrderModel({DIRECT: 0.5}, beats_default=False))
    decision = worse.choose(PROBLEM, mode="FAST")
    assert decision.rung == "fallback"
    assert "no better than defaults" in decision.reason
    without = selector_of(store).choose(PROBLEM, mode=2)
    assert without.rung == "fallback"
    assert without.solver in {one.id for one in solvers("conv")}


@pytest.mark.usefixtures("no_child")
def test_what_comes_with_foretune_answers_for_its_device_alone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chooser = selector_of(store, OrderModel({DIRECT: 0.5}, accepted=True))
    properties = chooser.properties
    config = solver("conv", NAIVE).default_config(PROBLEM, properties).key
    record = TunedRecord(PROBLEM, properties, NAIVE, config, 1.5)
    write_system_database(tmp_path, [record])
    database = SystemDatabase.read(tmp_path)
    monkeypatch.setattr(select, "shipped_database", lambda *_: database)
    decision = chooser.choose(PROBLEM)
    assert (decision.rung, decision.solver) == ("system database", NAIVE)
    assert decision.considered[0].measured_ms == 1.5
    store.put(stored(PROBLEM, DIRECT), properties)
    assert selector_of(store).choose(PROBLEM).rung == "user database"
    other = ConvProblem("F", 2, 8, (9, 9), 8, (3, 3))
    assert chooser.choose(other).rung == "model"


def test_an_unsure_model_is_measured_and_the_answer_kept(store: Store) -> None:
    model = OrderModel({"FaultyGood": 0.001, "FaultyNaive": 0.002})
    chooser = selector_of(store, model)
    decision = chooser.choose(faulty(), budget_ms=PLENTY)
    assert decision.rung == "measured top"
    assert decision.solver in ("FaultyGood", "FaultyNaive")
    measured = [one for one in decision.considered if one.measured_ms is not None]
    assert measured
    assert measured == sorted(measured, key=lambda one: one.measured_ms or 0)
    chooser.close()
    kept = store.measured(faulty(), chooser.properties)
    assert {one.solver for one in kept} == {one.solver for one in measured}
    assert {one.predicted_ms for one in kept} <= {0.001, 0.002}
    later = selector_of(store, model).choose(faulty())
    assert (later.rung, later.solver) == ("user database", decision.solver)


def test_what_was_measured_under_limits_answers_for_such_alone(store: Store) -> None:
    model = OrderModel({"FaultyHungry": 0.001, "FaultyGood": 0.002, "FaultyNaive": 0.003})
    chooser = selector_of(store, model)
    problem = faulty("faulty batch=1 size=200 dtype=FP16")
    first = chooser.choose(problem, workspace_limit=1 << 20, budget_ms=PLENTY)
    assert first.rung == "measured top"
    chooser.close()
    later = selector_of(store, model)
    assert later.choose(problem, workspace_limit=100).rung == "user database"
    assert later.choose(problem, budget_ms=PLENTY).rung == "measured top"
    later.close()


def test_who_was_not_built_is_measured_later(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORETUNE_CACHE", str(tmp_path / "cache"))
    model = OrderModel({"FaultyGood": 0.001, "FaultyNaive": 0.002})
    problem = faulty("faulty batch=1 size=200 dtype=FP16")
    chooser = selector_of(store, model)
    first = chooser.choose(problem, mode="DYNAMIC_HYBRID", budget_ms=PLENTY)
    assert [(one.solver, one.note) for one in first.considered if one.note] == [
        ("FaultyNaive", "not built yet")
    ]
    chooser.close()
    # As long as nobody has built it, the answer stays.
    assert selector_of(store, model).choose(problem).rung == "user database"
    other = selector_of(store, model)
    second = other.choose(problem, mode="HYBRID", budget_ms=20000)
    other.close()
    assert second.rung == "measured top"
    assert {one.solver for one in second.considered if one.measured_ms} == {
        "FaultyGood",
        "FaultyNaive",
    }
    assert selector_of(store, model).choose(problem).rung == "user database"


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        ("FaultyCrashing", "crashed"),
        ("FaultyWrong", "wrong"),
        ("FaultySpoiling", "wrong"),
        ("FaultyHanging", "hung"),
    ],
)
def test_a_fault_costs_its_candidate_only(store: Store, bad: str, status: str) -> None:
    model = OrderModel({bad: 0.001, "FaultyGood": 0.002})
    chooser = selector_of(store, model, timeout=5.0)
    decision = chooser.choose(faulty(), mode="HYBRID", budget_ms=PLENTY)
    assert decision.solver in ("FaultyGood", "FaultyNaive")
    assert decision.rung == "measured top"
    note = next(one.note for one in decision.considered if one.solver == bad)
    assert note.startswith(status)
    chooser.close()
    banned = store.banned(chooser.properties)[f"{bad}{{THREADS=64}}"]
    assert banned.reason.startswith(status)
    assert banned.problem == format_problem(faulty())
    # From then on it isn't tried, for no problem.
    later = selector_of(store, model)
    other = later.choose(faulty("faulty batch=1 size=300"), mode="FAST")
    assert other.solver == "FaultyGood"
    assert any(one.solver == bad and "not used" in one.note for one in other.considered)
    assert any(bad in note for note in later.notes())


def test_normal_finds_and_the_answer_is_finds_own(store: Store) -> None:
    chooser = selector_of(store, OrderModel({"FaultyGood": 1.0}, accepted=True))
    problem = faulty("faulty batch=1 size=300 dtype=FP16")
    decision = chooser.choose(problem, mode="NORMAL", budget_ms=8000)
    assert decision.rung == "find"
    chooser.close()
    found = store.get(problem, chooser.properties)
    assert found is not None
    assert found.solutions[0].solver == decision.solver
    assert "FaultyCrashing" in {left.candidate for left in found.left_out}
    assert {one.solver for one in found.solutions} == {"FaultyGood", "FaultyNaive"}


def test_without_a_model_hybrid_finds(store: Store) -> None:
    chooser = selector_of(store)
    problem = faulty("faulty batch=1 size=300 dtype=FP16")
    assert chooser.choose(problem, mode="HYBRID", budget_ms=500).rung == "find"
    chooser.close()


def test_a_convolution_is_computed_as_decided(store: Store) -> None:
    chooser = Selector("cpu", store=store, options=QUICK)
    decision = chooser.choose(PROBLEM, mode="HYBRID", budget_ms=500)
    chooser.close()
    x, w = np.ones((1, 8, 9, 9), np.float32), np.ones((8, 8, 3, 3), np.float32)
    y = compute(PROBLEM, x=x, w=w, solver=decision.solver, config=decision.config)
    assert np.all(y == 72)


def test_a_problem_that_cannot_be_set_up_falls_back(store: Store) -> None:
    chooser = selector_of(store, OrderModel({"FaultyGood": 1.0}))
    decision = chooser.choose(
        faulty("faulty batch=70000 size=1000000"), mode="HYBRID", budget_ms=PLENTY
    )
    assert decision.rung == "fallback"
    assert "nothing could be measured" in decision.reason
    chooser.close()
    assert store.banned(chooser.properties) == {}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("FORETUNE_FIND_MODE", "QUICK"),
        ("FORETUNE_FIND_MODE", "4"),
        ("FORETUNE_FIND_ENFORCE", "ALWAYS"),
        ("FORETUNE_LOG", "loud"),
    ],
)
def test_a_wrong_variable_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    log.logger.cache_clear()
    monkeypatch.setenv(variable, value)
    with pytest.raises(InputError, match=f"{variable}: expected one of .*{value}"):
        selector_of(store)
    log.logger.cache_clear()


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"mode": "SLOW"}, "mode"),
        ({"budget_ms": 0}, "budget_ms"),
        ({"budget_ms": "long"}, "budget_ms"),
        ({"workspace_limit": -1}, "workspace_limit"),
        ({"risk": 1.5}, "risk"),
    ],
)
def test_wrong_arguments_are_told(store: Store, arguments: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError, match=where):
        selector_of(store).choose(PROBLEM, **arguments)


@pytest.mark.parametrize("problem", ["a text", 3, [1], None])
def test_what_is_no_problem_is_told(store: Store, problem: Any) -> None:
    with pytest.raises(InputError, match="problem"):
        selector_of(store).choose(problem)


def test_a_problem_that_nothing_computes_is_told(store: Store) -> None:
    with pytest.raises(InputError, match="no solver can compute this"):
        selector_of(store).choose(ConvProblem("F", 1, 8, (9, 9), 8, (3, 3), dtype="INT8"))


@pytest.mark.usefixtures("no_child")
def test_variables_choose_the_mode(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETUNE_FIND_MODE", "fast")
    assert selector_of(store, OrderModel({DIRECT: 0.5})).choose(PROBLEM).rung == "model"


def test_enforcing_measures_what_is_known(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = faulty("faulty batch=1 size=300 dtype=FP16")
    first = selector_of(store)
    store.put(stored(problem, "FaultyNaive"), first.properties)
    monkeypatch.setenv("FORETUNE_FIND_ENFORCE", "DB_UPDATE")
    chooser = selector_of(store, OrderModel({"FaultyGood": 1.0}, accepted=True))
    assert chooser.choose(problem, budget_ms=8000).rung == "find"
    chooser.close()
    found = store.get(problem, chooser.properties)
    assert found is not None
    assert len(found.solutions) > 1
    monkeypatch.setenv("FORETUNE_FIND_ENFORCE", "SEARCH")
    assert selector_of(store).choose(problem).rung == "user database"


@pytest.mark.usefixtures("no_child")
def test_a_problem_can_be_cleaned_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = selector_of(store).properties
    store.put(stored(PROBLEM, NAIVE), properties)
    monkeypatch.setenv("FORETUNE_FIND_ENFORCE", "5")
    chooser = selector_of(store, OrderModel({DIRECT: 0.5}, accepted=True))
    assert chooser.choose(PROBLEM).rung == "model"
    assert store.get(PROBLEM, properties) is None


def test_drift_is_told(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    chooser = selector_of(store, OrderModel({"FaultyGood": 1e-9}))
    assert chooser.notes() == ()
    for size in range(20):
        kept = MeasuredCandidate("FaultyGood", "THREADS=64", 3.0, 3.0, 3.0, 7, 0, False, 1.0)
        store.put_measured(faulty(f"faulty batch=1 size={size + 1}"), [kept], chooser.properties)
    (note,) = chooser.notes()
    assert note.startswith("measured times are 3.00 times the predicted (median of 20)")
    assert note.endswith("foretune train kernels --user")
    with caplog.at_level(logging.WARNING, "foretune"):
        chooser.choose(faulty(), mode="HYBRID", budget_ms=PLENTY)
        chooser.choose(faulty("faulty batch=1 size=4097"), mode="HYBRID", budget_ms=PLENTY)
    chooser.close()
    assert sum("the model doesn't fit this device" in text for text in caplog.messages) == 1


def test_a_program_whose_kernels_are_built_loads_nothing_that_compiles_or_learns(
    tmp_path: Path,
) -> None:
    code = (
        "import sys\n"
        "import numpy as np\n"
        "import foretune\n"
        "x, w = np.ones((1, 8, 9, 9), np.float32), np.ones((8, 8, 3, 3), np.float32)\n"
        "y = foretune.conv2d(x, w, mode='FAST', device='cpu')\n"
        "assert np.all(y == 72)\n"
        "print(*sys.modules)\n"
    )
    environment = {**os.environ, "FORETUNE_CACHE": str(tmp_path)}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    unwanted = {"pandas", "sklearn", "lightgbm", "pyarrow", "torch", "subprocess"}
    assert not loaded & {*unwanted, "foretune.kernels.runtime.worker", "foretune.kernels.find"}


def test_one_line_of_log_for_a_decision(tmp_path: Path) -> None:
    code = (
        "from foretune.predictor.select import Selector\n"
        "from foretune.kernels.conv.problem import ConvProblem\n"
        "s = Selector('cpu')\n"
        "p = ConvProblem('F', 1, 8, (9, 9), 8, (3, 3))\n"
        "for _ in range(3): s.choose(p, mode='FAST')\n"
    )
    lines = {}
    for level in ("", "info"):
        environment = {**os.environ, "FORETUNE_CACHE": str(tmp_path), "FORETUNE_LOG": level}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        lines[level] = done.stderr.splitlines()
    assert lines[""] == []
    (line,) = lines["info"]
    assert line.startswith("foretune: conv direction=F batch=1")


def test_a_store_that_cannot_be_had_is_warned_of_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "found.db")
    chooser = selector_of(store, OrderModel({DIRECT: 0.5}, accepted=True))
    with pytest.warns(RuntimeWarning, match="FORETUNE_CACHE"):
        assert chooser.choose(PROBLEM).solver == DIRECT
    with warnings.catch_warnings(action="error"):
        other = chooser.choose(ConvProblem("B", 1, 8, (9, 9), 8, (3, 3)))
    assert other.solver == DIRECT


def test_a_corrupt_store_is_set_aside_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "found.db"
    path.write_bytes(b"this is no database, but long enough to be taken for one" * 40)
    chooser = selector_of(Store(path), OrderModel({DIRECT: 0.5}, accepted=True))
    with pytest.warns(RuntimeWarning, match="found.db.broken"):
        assert chooser.choose(PROBLEM).solver == DIRECT
    assert (tmp_path / "found.db.broken").exists()


def test_a_damaged_model_is_warned_of_and_not_used(store: Store) -> None:
    def damaged(_device: DeviceProperties, _operation: str) -> CandidateModel | None:
        raise InputError("is damaged", "model.json")

    chooser = Selector("cpu", store=store, model_of=damaged)
    with pytest.warns(RuntimeWarning, match="model.json: is damaged; no model is used"):
        assert chooser.choose(PROBLEM, mode="FAST").rung == "fallback"


@pytest.mark.usefixtures("no_child")
def test_what_cannot_be_launched_is_not_chosen_again(store: Store) -> None:
    model = OrderModel({DIRECT: 0.5, NAIVE: 3.0}, accepted=True)
    chooser = selector_of(store, model)
    first = chooser.choose(PROBLEM)
    chooser.reject(first, "the compiler failed")
    assert (chooser.choose(PROBLEM).solver, first.solver) == (NAIVE, DIRECT)
    assert selector_of(store, model).choose(PROBLEM).solver == NAIVE


def test_bans_last_for_the_kind_of_device(store: Store) -> None:
    chooser = selector_of(store, OrderModel({DIRECT: 0.5}, accepted=True))
    key = f"{DIRECT}{{{chooser.choose(PROBLEM).config}}}"
    store.ban(BannedCandidate(key, "conv ...", "crashed: SIGSEGV"), chooser.properties)
    store.put(stored(PROBLEM, DIRECT, NAIVE), chooser.properties)
    decision = selector_of(store).choose(PROBLEM, mode="FAST")
    assert (decision.rung, decision.solver) == ("user database", NAIVE)
    assert decision.considered[0].note.startswith("not used, crashed")
