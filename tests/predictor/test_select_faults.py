"""The ladder with many processes at once, killed ones, and a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foretune.kernels.problem_text import parse_problem
from foretune.kernels.runtime.device import open_device
from foretune.kernels.store import Store
from tests.kernels.faulty_server import add_operation
from tests.kernels.processor import needs_processor

pytestmark = needs_processor
add_operation()

ROOT = str(Path(__file__).parents[2])
_MEASURE = """
import sys
from foretune.kernels.problem_text import parse_problem
from foretune.kernels.store import Store
from tests.predictor.select_model import OrderModel
from tests.predictor.test_select import selector_of
path, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
model = OrderModel({"FaultyGood": 0.001, "FaultyNaive": 0.002})
chooser = selector_of(Store(path), model)
for size in range(first, first + count):
    problem = parse_problem(f"faulty batch=1 size={size} dtype=FP16")
    print(size, chooser.choose(problem, mode="HYBRID", budget_ms=500).solver, flush=True)
"""
#: Larger files can't be written by the process.
_FULL = """
import resource, sys, warnings
import numpy as np
import foretune
from foretune.kernels.compute import compute
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.measure import MeasureOptions
from foretune.kernels.store import Store
from foretune.predictor.select import Selector
store = Store(sys.argv[1])
options = MeasureOptions(rounds=2, most_samples=2, warm_up_ms=1.0)
chooser = Selector("cpu", store=store, model_of=lambda *_: None, options=options)
store.banned(chooser.properties)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for channels in (4, 5):
        problem = ConvProblem("F", 1, channels, (9, 9), 8, (3, 3))
        decision = chooser.choose(problem, budget_ms=300)
        x = np.ones((1, channels, 9, 9), np.float32)
        w = np.ones((8, channels, 3, 3), np.float32)
        y = compute(problem, x=x, w=w, solver=decision.solver, config=decision.config)
        assert np.all(y == 9 * channels)
        print(decision.rung)
for one in caught:
    print("warned:", one.message)
"""


def start(code: str, *words: str) -> subprocess.Popen[str]:
    # Also for the children of that process, which don't look into its folder.
    environment = {**os.environ, "PYTHONPATH": ROOT}
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_eight_processes_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "found.db"
    processes = [start(_MEASURE, str(path), str(100 * number + 1), "2") for number in range(8)]
    for process in processes:
        out, err = process.communicate()
        assert process.returncode == 0, err
        assert len(out.splitlines()) == 2
    store, properties = Store(path), open_device("cpu").properties
    for number in range(8):
        for size in (100 * number + 1, 100 * number + 2):
            kept = store.measured(
                parse_problem(f"faulty batch=1 size={size} dtype=FP16"), properties
            )
            assert kept, size
    assert store.note == ""


@pytest.mark.parametrize("moment", [0.0, 0.4])
def test_a_killed_process_leaves_what_it_had_decided(tmp_path: Path, moment: float) -> None:
    path = tmp_path / "found.db"
    process = start(_MEASURE, str(path), "1", "100000")
    assert process.stdout is not None
    decided = [int(process.stdout.readline().split()[0]) for _ in range(3)]
    time.sleep(moment)
    process.kill()
    process.communicate()
    store, properties = Store(path), open_device("cpu").properties
    for size in decided:
        problem = parse_problem(f"faulty batch=1 size={size} dtype=FP16")
        assert store.measured(problem, properties)
    assert store.note == ""
    again = start(_MEASURE, str(path), "1", "1")
    out, err = again.communicate()
    assert again.returncode == 0, err
    assert out.startswith("1 Faulty")


def test_a_full_disk_costs_no_answer_and_is_told_once(tmp_path: Path) -> None:
    process = start(_FULL, str(tmp_path / "found.db"))
    out, err = process.communicate()
    assert process.returncode == 0, err
    warned = [line for line in out.splitlines() if line.startswith("warned:")]
    assert len(warned) == 1, out
    assert "isn't kept" in warned[0]
