"""Child processes: answers, exceptions, crashes, hangs, and what is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from foretune.kernels.runtime.worker import Worker, WorkerDied, WorkerRaised

JOBS = """
import os, signal, time

def echo(*arguments):
    return lambda payload: {"arguments": arguments, "variable": os.environ.get("FORETUNE_TEST"),
        **payload, "pid": os.getpid()}

def obey():
    def act(payload):
        kind = payload["do"]
        if kind == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if kind == "abort":
            print("the compiler is confused", flush=True)
            os.abort()
        if kind == "exit":
            os._exit(7)
        if kind == "hang":
            time.sleep(3600)
        if kind == "raise":
            raise ValueError("no such thing")
        if kind == "helper":
            import subprocess
            return {"pid": subprocess.Popen(["sleep", "3600"]).pid}
        return {"did": kind, "pid": os.getpid()}
    return act

def broken():
    raise OSError("nothing to start with")
"""


@pytest.fixture(autouse=True)
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "worker_jobs.py").write_text(JOBS)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture
def obedient() -> Iterator[Worker]:
    with Worker("worker_jobs:obey") as worker:
        yield worker


def test_answers_calls_in_one_child() -> None:
    with Worker("worker_jobs:echo", 1, "two") as worker:
        first = worker.call({"data": b"\0" * 300_000}, timeout=60)
        second = worker.call({}, timeout=60)
    assert first["arguments"] == (1, "two")
    assert len(first["data"]) == 300_000
    assert first["pid"] == second["pid"] != os.getpid()


def test_sets_the_childs_environment() -> None:
    with Worker("worker_jobs:echo", environment={"FORETUNE_TEST": "set"}) as worker:
        assert worker.call({}, timeout=60)["variable"] == "set"


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        ("crash", r"the process crashed \(SIGSEGV\)"),
        ("abort", r"the process crashed \(SIGABRT\): the compiler is confused"),
        ("exit", "the process ended with exit code 7"),
    ],
)
def test_tells_how_a_child_died_and_starts_another(
    obedient: Worker, deed: str, reason: str
) -> None:
    before = obedient.call({"do": "work"}, timeout=60)
    with pytest.raises(WorkerDied, match=reason):
        obedient.call({"do": deed}, timeout=60)
    after = obedient.call({"do": "work"}, timeout=60)
    assert after["did"] == "work"
    assert after["pid"] != before["pid"]


def test_ends_a_child_that_hangs(obedient: Worker) -> None:
    before = obedient.call({"do": "work"}, timeout=60)["pid"]
    with pytest.raises(WorkerDied, match=r"took more than 0\.1 s"):
        obedient.call({"do": "hang"}, timeout=0.1)
    assert not _lives(before)
    assert obedient.call({"do": "work"}, timeout=60)["did"] == "work"


def test_a_child_survives_an_exception(obedient: Worker) -> None:
    before = obedient.call({"do": "work"}, timeout=60)["pid"]
    with pytest.raises(WorkerRaised, match="ValueError: no such thing"):
        obedient.call({"do": "raise"}, timeout=60)
    assert obedient.call({"do": "work"}, timeout=60)["pid"] == before


def test_tells_what_the_factory_raised() -> None:
    with Worker("worker_jobs:broken") as worker:
        for _ in range(2):
            with pytest.raises(WorkerRaised, match="OSError: nothing to start with"):
                worker.call({}, timeout=60)


def test_helpers_of_a_child_end_with_it() -> None:
    with Worker("worker_jobs:obey") as worker:
        helper = worker.call({"do": "helper"}, timeout=60)["pid"]
        assert _lives(helper)
    _wait_until(lambda: not _lives(helper))


def test_ends_when_its_parent_is_killed() -> None:
    script = (
        "from foretune.kernels.runtime.worker import Worker\n"
        "worker = Worker('worker_jobs:obey')\n"
        "print(worker.call({'do': 'work'}, 60)['pid'], flush=True)\n"
        "worker.call({'do': 'hang'}, 3600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert _lives(child)
        parent.send_signal(signal.SIGKILL)
    _wait_until(lambda: not _lives(child))


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _wait_until(holds: Callable[[], Any]) -> None:
    while not holds():
        time.sleep(0.05)
