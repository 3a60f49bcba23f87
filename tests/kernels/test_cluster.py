"""Tuning on a Ray cluster: who is lost costs its job, which is done elsewhere."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foretune.errors import InputError
from foretune.kernels.journal import Journal, Trial
from foretune.kernels.measure import MeasureOptions
from foretune.kernels.problem_text import expand_problems
from foretune.kernels.tune import TuneReport, tune
from tests.kernels.faulty_server import add_operation
from tests.kernels.lost_hosts import FATAL, hosts
from tests.kernels.processor import needs_processor

ray = pytest.importorskip("ray", reason="needs foretune[cluster]")
from ray import cluster_utils  # noqa: E402

from foretune.kernels.cluster import ClusterFleet  # noqa: E402

pytestmark = needs_processor
add_operation()

QUICK = MeasureOptions(rounds=3, most_samples=5, warm_up_ms=1.0)
GOOD_CONFIGS = 5
OBJECT_STORE = 100 << 20


@pytest.fixture(scope="module")
def far_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the cluster's machines keep binaries."""
    return tmp_path_factory.mktemp("far")


@pytest.fixture(scope="module", autouse=True)
def cluster(far_cache: Path) -> Iterator[Any]:
    """A cluster of this machine alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORETUNE_CACHE", str(far_cache))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        head = {"num_cpus": 3, "include_dashboard": False, "object_store_memory": OBJECT_STORE}
        made = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
        ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture(autouse=True)
def near_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the tuning process keeps binaries."""
    monkeypatch.setenv("FORETUNE_CACHE", str(tmp_path))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "run.journal")
    yield made
    made.close()


def tune_faulty(journal: Journal, text: str, server: str = "serve", **options: Any) -> TuneReport:
    return tune(
        expand_problems(text),
        journal,
        fleet=ClusterFleet("local", "cpu", devices=2),
        server=f"tests.kernels.lost_hosts:{server}",
        options=QUICK,
        **options,
    )


def tried(journal: Journal) -> list[Trial]:
    return [trial for trial in journal.trials() if trial.config]


def test_a_killed_host_costs_no_trial(
    journal: Journal, far_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Journal.record
    killed: list[int] = []

    def kill_at_third(self: Journal, trial: Trial) -> None:
        record(self, trial)
        if len(tried(self)) == 3 and not killed:
            killed.append(hosts(far_cache)[0])
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(Journal, "record", kill_at_third)
    report = tune_faulty(journal, "faulty batch=1 size=300|301|302|303 dtype=FP16")
    assert killed
    assert report.losses == 1
    assert report.is_complete
    # Nothing is lost, nothing done twice, and nothing compiled by those who measure.
    assert report.built > GOOD_CONFIGS
    assert dict(report.statuses) == {"measured": 4 * (GOOD_CONFIGS + 1)}
    assert len(tried(journal)) == 4 * (GOOD_CONFIGS + 1)


def test_a_machine_that_leaves_does_not_stop_the_run(
    journal: Journal, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving = cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE)
    record = Journal.record

    def leave_at_third(self: Journal, trial: Trial) -> None:
        record(self, trial)
        if len(tried(self)) == 3 and leaving in cluster.worker_nodes:
            cluster.remove_node(leaving, allow_graceful=False)

    monkeypatch.setattr(Journal, "record", leave_at_third)
    report = tune_faulty(journal, "faulty batch=1 size=300|301|302 dtype=FP16")
    assert leaving not in cluster.worker_nodes
    assert report.losses == 1
    assert report.is_complete
    assert dict(report.statuses) == {"measured": 3 * (GOOD_CONFIGS + 1)}
    assert len(tried(journal)) == 3 * (GOOD_CONFIGS + 1)


def test_who_takes_two_hosts_along_is_recorded(journal: Journal) -> None:
    report = tune_faulty(journal, "faulty batch=1 size=300 dtype=FP16", "serve_fatal")
    assert report.is_complete
    assert report.losses == 2
    assert dict(report.statuses) == {"measured": GOOD_CONFIGS, "crashed": 1}
    crashed = [trial for trial in journal.trials() if trial.status == "crashed"]
    assert {(trial.solver, trial.config) for trial in crashed} == {("FaultyGood", FATAL)}
    assert "2 measuring processes were lost with it" in crashed[0].reason


def test_a_run_without_a_cluster_goes_on_in_one(journal: Journal) -> None:
    problems = expand_problems("faulty batch=1 size=300 dtype=FP16")
    server = "tests.kernels.faulty_server:serve"
    first = tune(problems, journal, "cpu", sample=1, options=QUICK, server=server, workers=1)
    assert first.statuses.total() == 2
    report = tune_faulty(journal, "faulty batch=1 size=300 dtype=FP16")
    assert dict(report.statuses) == {"measured": GOOD_CONFIGS - 1}
    assert report.is_complete


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("local", "cuda:1"), "without a number, got 'cuda:1'"),
        (("local", "cpu,cpu"), "without a number"),
        (("local", "cuda", 2), "has 0 GPUs, asked for 2"),
        (("local", "cpu", 0), "expected at least 1"),
    ],
)
def test_wrong_devices_are_told(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ClusterFleet(*arguments)


def test_a_server_that_does_not_start_is_told(journal: Journal) -> None:
    with pytest.raises(InputError, match="doesn't start: AttributeError"):
        tune_faulty(journal, "faulty batch=1 size=9 dtype=FP16", "missing")
