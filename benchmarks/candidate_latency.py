"""How long ranking the candidates of a new problem takes.

Run with ``python benchmarks/candidate_latency.py [arch]``. Every problem is new to the model; the
forests are compiled, as in a process that has asked for a while. Medians over the suites' problems,
one thread, process time (so that other programs on the machine count little).
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from dataclasses import replace

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.suites import read_suite
from foretune.predictor.kernels.model import KernelModel
from foretune.predictor.kernels.models import model_in, shipped_candidates

SUITES = {"cpu": "cpu,cpu_varied"}


def new_problems(suite: str) -> list[ConvProblem]:
    """Give the problems of a suite with batches that nobody uses."""
    return [
        replace(problem, batch=problem.batch + 1, out_size=())
        for problem in read_suite(suite)
        if isinstance(problem, ConvProblem)
    ]


def microseconds(model: KernelModel, problems: list[ConvProblem], top: int | None) -> list[float]:
    """Time each answer, the best of three."""
    device = model.devices[0]
    taken = []
    for problem in problems:
        times = []
        for _ in range(3):
            start = time.thread_time_ns()
            model.rank(problem, device, top=top)
            times.append(time.thread_time_ns() - start)
        taken.append(min(times) / 1e3)
    return taken


def main() -> None:
    """Print a line for each number of candidates that are asked for."""
    arch = sys.argv[1] if len(sys.argv) > 1 else "sm_90"
    model = model_in((shipped_candidates(),), arch, "conv")
    if model is None:
        raise SystemExit(f"no model for {arch}")
    problems = new_problems(SUITES.get(arch, "gpu,varied"))
    ranker = model.ranker
    for forest in (ranker.orders, ranker.numbers, ranker.times, ranker.judge):
        if forest is not None:
            forest.engine = "llvm"
    microseconds(model, problems[:5], None)
    for top in (1, 4, 16, None):
        times = microseconds(model, problems, top)
        print(
            f"{arch}, top {top or 'all'}: median {statistics.median(times):.0f} us, "
            f"slowest tenth {statistics.quantiles(times, n=10)[-1]:.0f} us"
        )


if __name__ == "__main__":
    main()
