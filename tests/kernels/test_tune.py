"""Tuning: every failure costs one config, a killed run goes on, and everything is recorded."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.journal import Journal, Trial
from foretune.kernels.measure import MeasureOptions
from foretune.kernels.problem_text import expand_problems
from foretune.kernels.rounds import Visit
from foretune.kernels.runtime.device import open_device
from foretune.kernels.tune import TuneReport, tune
from foretune.kernels.visiting import Visitor
from tests.kernels.faulty_server import add_operation
from tests.kernels.processor import needs_processor

pytestmark = needs_processor
add_operation()

SERVER = "tests.kernels.faulty_server:serve"
QUICK = MeasureOptions(rounds=3, most_samples=5, warm_up_ms=1.0)
GOOD_CONFIGS = 5


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "run.journal")
    yield made
    made.close()


def tune_faulty(journal: Journal, text: str, device: str = "cpu", **options: Any) -> TuneReport:
    return tune(
        expand_problems(text), journal, device, options=QUICK, server=SERVER, workers=1, **options
    )


def by_candidate(journal: Journal) -> dict[tuple[str, str], Trial]:
    return {(trial.solver, trial.config): trial for trial in journal.trials()}


@pytest.fixture(scope="module")
def faulty_run(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[TuneReport, dict[tuple[str, str], Trial]]:
    journal = Journal(tmp_path_factory.mktemp("faulty") / "run.journal")
    report = tune_faulty(journal, "faulty batch=16 size=65536", timeout=8.0)
    trials = by_candidate(journal)
    journal.close()
    return report, trials


@pytest.mark.parametrize(
    ("solver", "status", "reason"),
    [
        ("FaultyCrashing", "crashed", "SIGSEGV"),
        ("FaultyHanging", "hung", "took more than 8 s"),
        ("FaultyWrong", "wrong", "differs from the naive solver by 0.0"),
        ("FaultySpoiling", "wrong", "differs from the naive solver by 0."),
        ("FaultyUnbuildable", "compile error", "error"),
        ("FaultyHungry", "out of memory", "35184372088832 bytes"),
        ("FaultySlow", "too slow", "or more, the fastest takes"),
    ],
)
def test_a_failure_costs_one_config_and_has_a_reason(
    faulty_run: tuple[TuneReport, dict[tuple[str, str], Trial]],
    solver: str,
    status: str,
    reason: str,
) -> None:
    trial = faulty_run[1][solver, "THREADS=64"]
    assert trial.status == status
    assert reason in trial.reason


def test_good_candidates_are_measured_beside_bad_ones(
    faulty_run: tuple[TuneReport, dict[tuple[str, str], Trial]],
) -> None:
    report, trials = faulty_run
    good = [trial for (solver, _), trial in trials.items() if solver == "FaultyGood"]
    assert len(good) == GOOD_CONFIGS
    # Some of them come after the solver that spoils the inputs.
    assert {trial.status for trial in good} == {"measured"}
    assert all(trial.time_ms and trial.time_ms > 0 and trial.error == 0 for trial in good)
    assert trials["FaultyNaive", "THREADS=64"].status == "measured"
    assert all(trial.local_bytes == 0 and trial.spill_bytes is not None for trial in good)
    assert trials["FaultySlow", "THREADS=64"].local_bytes == 0
    assert trials["FaultyUnbuildable", "THREADS=64"].local_bytes is None
    assert max(trial.samples for trial in good) >= QUICK.rounds
    assert report.is_complete
    assert report.statuses.total() == len(trials) == GOOD_CONFIGS + 8


def test_shares_of_time_add_up(
    faulty_run: tuple[TuneReport, dict[tuple[str, str], Trial]],
) -> None:
    report, _ = faulty_run
    assert 0 < report.measuring_seconds < report.seconds
    assert 0 <= report.waiting_seconds <= report.compiling_seconds + 1
    assert report.measuring_seconds + report.waiting_seconds <= report.seconds + 1


def test_nothing_is_tried_twice(journal: Journal) -> None:
    text = "faulty batch=1 size=300|301 dtype=FP16"
    first = tune_faulty(journal, text, sample=1)
    second = tune_faulty(journal, text, sample=1)
    third = tune_faulty(journal, text, sample=3)
    assert (first.statuses.total(), second.statuses.total()) == (4, 0)
    assert dict(third.statuses) == {"measured": 4}
    assert first.is_complete
    assert second.is_complete


def test_a_budget_ends_a_run_and_leaves_the_rest(journal: Journal) -> None:
    text = "faulty batch=1 size=300|301|302 dtype=FP16"
    first = tune_faulty(journal, text, budget=1e-6)
    assert not first.is_complete
    assert first.statuses.total() < 3 * (GOOD_CONFIGS + 1)
    rest = tune_faulty(journal, text)
    assert rest.is_complete
    assert first.statuses.total() + rest.statuses.total() == 3 * (GOOD_CONFIGS + 1)


def test_solvers_that_are_not_applicable_are_listed(journal: Journal) -> None:
    tune_faulty(journal, "faulty batch=1 size=300 dtype=FP16", budget=1e-6)
    trial = by_candidate(journal)["FaultyHungry", ""]
    assert (trial.status, trial.reason) == ("not applicable", "spares FP16")


def test_tensors_that_do_not_fit_are_recorded(journal: Journal) -> None:
    report = tune_faulty(journal, "faulty batch=1 size=1099511627776", sample=1)
    assert set(report.statuses) == {"out of memory"}
    assert report.is_complete


_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from foretune.kernels.journal import Journal
from tests.kernels.test_tune import tune_faulty
tune_faulty(Journal(sys.argv[2]), sys.argv[3])
"""


@pytest.mark.parametrize("seen", [1, 7])
def test_a_killed_run_goes_on(tmp_path: Path, seen: int) -> None:
    path = tmp_path / "run.journal"
    text = "faulty batch=1 size=300|301|302 dtype=FP16"
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM, root, str(path), text])
    while recorded(path) < seen and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = recorded(path)
    assert before >= seen
    journal = Journal(path)
    report = tune_faulty(journal, text)
    after = [trial for trial in journal.trials() if trial.config]
    journal.close()
    assert report.is_complete
    assert len(after) == 3 * (GOOD_CONFIGS + 1)
    assert report.statuses.total() == len(after) - before


def recorded(path: Path) -> int:
    """Trials that another process has written so far."""
    if not path.exists():
        return 0
    database = sqlite3.connect(path, timeout=30)
    try:
        return int(database.execute("SELECT count(*) FROM trial WHERE config != ''").fetchone()[0])
    except sqlite3.OperationalError:  # it hasn't made its tables yet
        return 0
    finally:
        database.close()


def test_a_measuring_process_that_does_not_start_records_nothing(journal: Journal) -> None:
    with pytest.raises(RuntimeError, match=r"doesn't start: ModuleNotFoundError"):
        tune(
            expand_problems("faulty batch=1 size=9 dtype=FP16"),
            journal,
            "cpu",
            server="no.such:server",
        )
    journal.use_device(open_device("cpu").properties)
    assert not by_candidate(journal)


def test_devices_share_the_problems_out(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    visits: dict[str, set[int]] = {}
    attempt = Visitor.visit

    def noted(self: Visitor, visit: Visit, *arguments: Any) -> None:
        visits.setdefault(visit.task.text, set()).add(id(self))
        attempt(self, visit, *arguments)

    monkeypatch.setattr(Visitor, "visit", noted)
    report = tune_faulty(journal, "faulty batch=1 size=300|301|302|303 dtype=FP16", "cpu,cpu")
    assert report.is_complete
    assert report.devices == 2
    tried = [trial for trial in journal.trials() if trial.config]
    assert report.statuses.total() == len(tried) == 4 * (GOOD_CONFIGS + 1)
    assert len(visits) == 4
    assert len(set().union(*visits.values())) == 2
    assert report.measuring_seconds + report.waiting_seconds <= report.seconds


def test_a_failure_of_one_device_ends_the_run(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = 0

    def full(_: Journal, trial: Trial) -> None:
        nonlocal recorded
        recorded += bool(trial.config)
        if recorded == 3:
            raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Journal, "record", full)
    with pytest.raises(sqlite3.OperationalError, match="is full"):
        tune_faulty(journal, "faulty batch=1 size=300|301|302|303 dtype=FP16", "cpu,cpu")


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cuda:1,cuda:1", "is listed twice"),
        ("cuda,cuda:0", "is listed twice"),
        ("cpu,", "expected names joined by commas"),
        ("cpu,cpu:9", "asked for number 9"),
    ],
)
def test_wrong_devices_are_told(journal: Journal, device: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tune_faulty(journal, "faulty batch=1 size=300 dtype=FP16", device)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"budget": 0.0}, {"budget": float("nan")}, {"sample": 0}),
        *({"timeout": 0.0}, {"timeout": float("nan")}, {"timeout": float("inf")}),
    ],
)
def test_wrong_arguments_are_told(journal: Journal, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected"):
        tune([ConvProblem("F", 1, 4, (6, 6), 4, (3, 3))], journal, "cpu", **wrong)
