"""How long decisions take: in a process that has decided before, by the model, and the first.

    python benchmarks/decision_latency.py [--device cpu] [--rounds 7]

It prints, each as the median (and quartiles) of several rounds,
- a decision that this process has made before (asked at most 5 microseconds),
- one from the user's database,
- one by the model alone, with all that comes before it (asked at most 300 microseconds),
- the first convolution of a fresh process on a new shape, from the start of the process to the
  result, with binaries cached (asked at most 0.5 s on `cpu`), and its processor time; that no
  compiler ran.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median, quantiles

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.found import Found, FoundSolution
from foretune.kernels.store import Store
from foretune.predictor.decision import Decision
from foretune.predictor.select import Selector, shipped_model

PROBLEM = ConvProblem("F", 8, 64, (28, 28), 64, (3, 3), padding=(1, 1))

#: Run in a fresh process: the size of the image is its argument.
FIRST = """
import sys, time
import numpy as np
import foretune
size, device = int(sys.argv[1]), sys.argv[2]
x = np.ones((1, 16, size, size), np.float32)
w = np.ones((16, 16, 3, 3), np.float32)
y = foretune.conv2d(x, w, padding=1, device=device, mode="FAST")
assert y[0, 0, 1, 1] == 144, y[0, 0, 1, 1]
compiled = "foretune.kernels.runtime.worker" in sys.modules
print(time.process_time(), int(compiled))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder, "found.db"))
        selector = Selector(options.device, store=store)
        print(f"on {selector.properties.name}, {options.rounds} rounds, microseconds")
        _print("decided before", _decided_before(selector), options.rounds)
        _print("user database", _database(selector, store), options.rounds)
        if shipped_model(selector.properties, PROBLEM.operation) is None:
            print(f"there is no model for {selector.properties.arch}")
        else:
            _print("model alone", _model(selector), options.rounds)
    _first(options.device, options.rounds)


def _decided_before(selector: Selector) -> Callable[[], float]:
    selector.choose(PROBLEM, mode="FAST")

    def run() -> float:
        began = time.perf_counter()
        for _ in range(1000):
            selector.choose(PROBLEM, mode="FAST")
        return (time.perf_counter() - began) / 1000

    return run


def _database(selector: Selector, store: Store) -> Callable[[], float]:
    problems = _new_problems()
    decision = selector.choose(PROBLEM, mode="FAST")
    solution = FoundSolution(decision.solver, decision.config, 1.0, 1.0, 1.0, 7, 0)

    def run() -> float:
        some = [next(problems) for _ in range(20)]
        for problem in some:
            store.put(Found(problem, selector.properties.name, (solution,)), selector.properties)
        return _time(selector, some, "user database")

    return run


def _model(selector: Selector) -> Callable[[], float]:
    problems = _new_problems(batch=7)

    def run() -> float:
        # Whose picks are no better than defaults is asked all the same.
        return _time(selector, [next(problems) for _ in range(20)], "model", "fallback")

    return run


def _time(selector: Selector, problems: list[ConvProblem], *rungs: str) -> float:
    took = []
    for problem in problems:
        began = time.perf_counter()
        decision: Decision = selector.choose(problem, mode="FAST")
        took.append(time.perf_counter() - began)
        if decision.rung not in rungs:
            raise SystemExit(f"expected an answer by {rungs[0]}, got one by {decision.rung}")
    return median(took)


def _new_problems(batch: int = 8) -> Iterator[ConvProblem]:
    for size in count(29):
        yield replace(PROBLEM, batch=batch, in_size=(size, size), out_size=())


def _print(name: str, run: Callable[[], float], rounds: int) -> None:
    run()
    took = [1e6 * run() for _ in range(rounds)]
    low, middle, high = quantiles(took, n=4)
    print(f"{name:16} {middle:8.1f}  ({low:.1f} to {high:.1f})")


def _first(device: str, rounds: int) -> None:
    walls, processors, compiled = [], [], 0
    for size in range(20, 21 + rounds):
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", FIRST, str(size), device],
            capture_output=True,
            text=True,
            check=True,
        )
        # The first may have had to compile.
        if size > 20:
            walls.append(time.perf_counter() - began)
            seconds, has_compiled = done.stdout.split()
            processors.append(float(seconds))
            compiled += int(has_compiled)
    print(
        f"first convolution of a process, new shape: {median(walls):.2f} s "
        f"({min(walls):.2f} to {max(walls):.2f}), processor time {median(processors):.2f} s "
        f"({min(processors):.2f} at least), compilers run: {compiled}"
    )


if __name__ == "__main__":
    main()
