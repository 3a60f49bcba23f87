"""Our best tuned candidates against PyTorch's convolutions, layer by layer, in one run.

    python benchmarks/conv_against_pytorch.py --device cuda --suite gpu --tuned h200.parquet

takes each problem's fastest candidate of a dataset that `foretune tune` made; without ``--tuned``
it lets `foretune.find` look for ``--budget`` seconds a problem. On CUDA PyTorch runs cuDNN with
its own search switched on (``benchmark``) and TF32 off. Both sides are warmed up, and timed by
turns with the cache cleared before each sample (`foretune.kernels.measure.Race`). The figure is
PyTorch's time over ours: 1 is a draw, 2 is twice as fast as PyTorch.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import torch

from foretune.kernels.cache import CacheCleaner
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.find import find
from foretune.kernels.measure import DeviceSampler, MeasureOptions, Race
from foretune.kernels.memory import ProblemMemory
from foretune.kernels.problem_text import format_problem
from foretune.kernels.registry import solver, tensors
from foretune.kernels.runtime.device import open_device
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.solver import Candidate
from foretune.kernels.suites import read_suite

TORCH_TYPES = {"FP32": torch.float32, "FP16": torch.float16, "BF16": torch.bfloat16}
#: Peak rates in operations per second, fp32 and 16-bit matrix, and bytes per second (the maker's
#: data sheets).
PEAKS = {"sm_90": (66.9e12, 989.5e12, 4.8e12)}

#: Device cycles, about half a millisecond, in which the host gets ahead of the device.
HEAD_START_CYCLES = 1_000_000


@dataclass(frozen=True)
class Line:
    """One problem: the candidate, both times in milliseconds, and shares."""

    problem: str
    direction: str
    dtype: str
    candidate: str
    ours_ms: float
    pytorch_ms: float
    #: PyTorch's time over ours.
    ratio: float
    #: Time that the roofline allows over ours; None where the peak isn't known.
    roofline: float | None


def pytorch_run(problem: ConvProblem, device: str) -> Callable[[], Any]:
    """Make the call that PyTorch's users make, with its tensors ready."""
    layout = torch.channels_last if problem.layout == "NHWC" else torch.contiguous_format
    made = {
        tensor.name: torch.randn(tensor.shape, device=device)
        .to(TORCH_TYPES[tensor.dtype])
        .contiguous(memory_format=layout)
        for tensor in tensors(problem)[:3]
    }
    x, w, y = made["x"], made["w"], made["y"]
    stride, padding, dilation = map(list, (problem.stride, problem.padding, problem.dilation))
    if problem.direction == "F":
        return lambda: torch.conv2d(x, w, None, stride, padding, dilation, problem.groups)
    wanted = [problem.direction == "B", problem.direction == "W", False]
    return lambda: torch.ops.aten.convolution_backward(
        *(y, x, w, None, stride, padding, dilation, False, [0, 0], problem.groups, wanted)
    )


class Rivals:
    """Samples of our candidate and of PyTorch on one device."""

    def __init__(self, executor: Executor, problem: ConvProblem) -> None:
        self.ours = DeviceSampler(executor, ProblemMemory(executor.device, problem))
        self._cache = CacheCleaner(executor.device)
        self._is_cuda = executor.device.properties.backend == "cuda"
        self._device = executor.device
        self._run = pytorch_run(problem, "cuda" if self._is_cuda else "cpu")

    def sample(self, key: str, repeats: int) -> float:
        """Milliseconds of some runs after clearing the cache."""
        if key != "pytorch":
            return self.ours.sample(key, repeats)
        self._cache.clean()
        self._device.synchronize()
        if not self._is_cuda:
            start = time.perf_counter()
            for _ in range(repeats):
                self._run()
            return 1e3 * (time.perf_counter() - start)
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # PyTorch's calls take the host longer than many kernels: it gets a head start, so that the
        # events enclose the device's work alone, as they do for our launches.
        torch.cuda._sleep(HEAD_START_CYCLES * (1 + repeats))
        first.record()
        for _ in range(repeats):
            self._run()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last))

    def close(self) -> None:
        """Give all memory back."""
        self.ours.close()
        self._cache.close()


def compare(executor: Executor, problem: ConvProblem, candidate: Candidate[Any]) -> Line:
    """Race one candidate against PyTorch."""
    rivals = Rivals(executor, problem)
    try:
        rivals.ours.add("ours", candidate.solver.plan(problem, candidate.config))
        race = Race(rivals, MeasureOptions(rounds=11, hopeless=inf))
        for key in ("pytorch", "ours"):
            race.enter(key)
        race.run()
    finally:
        rivals.close()
    ours, theirs = (race.results[key].time_ms for key in ("ours", "pytorch"))
    peaks = PEAKS.get(executor.device.properties.arch)
    roofline = None
    if peaks:
        rate = peaks[0] if problem.dtype == "FP32" else peaks[1]
        moved = sum(tensor.nbytes for tensor in tensors(problem))
        roofline = 1e3 * max(problem.flops / rate, moved / peaks[2]) / ours
    text = format_problem(problem)
    return Line(
        *(text, problem.direction, problem.dtype, candidate.key),
        *(ours, theirs, theirs / ours, roofline),
    )


def tuned_candidates(path: Path) -> dict[str, Candidate[Any]]:
    """Read the fastest measured candidate of each problem of a dataset."""
    import pyarrow.parquet as pq

    best: dict[str, tuple[float, str, str, str]] = {}
    columns = ["problem", "operation", "solver", "config", "status", "time_ms"]
    for row in pq.read_table(path, columns=columns).to_pylist():
        if row["status"] == "measured":
            entry = (row["time_ms"], row["operation"], row["solver"], row["config"])
            best[row["problem"]] = min(best.get(row["problem"], entry), entry)
    return {
        problem: Candidate(solver(operation, solver_id), parse_config(config))
        for problem, (_, operation, solver_id, config) in best.items()
    }


def parse_config(key: str) -> Any:
    """Read a config that was valid when it was tuned."""
    from foretune.kernels.space import Config

    pairs = (part.split("=") for part in key.split(",") if part)
    return Config({name: int(value) for name, value in pairs})


def found_candidate(problem: ConvProblem, device: str, budget: float) -> Candidate[Any]:
    """Let find look for a while."""
    first = find(problem, device=device, budget=budget).solutions[0]
    return Candidate(solver("conv", first.solver), parse_config(first.config))


def main() -> None:
    """Compare, print each layer and the means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--suite", default="cpu")
    parser.add_argument("--tuned", type=Path, help="dataset of foretune tune")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of find a problem")
    parser.add_argument("--json", type=Path, help="write all lines here")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    executor = Executor(open_device(options.device))
    if executor.device.properties.arch == "cpu":
        torch.set_num_threads(executor.device.properties.compute_units)
    tuned = tuned_candidates(options.tuned) if options.tuned else {}
    lines = []
    for problem in read_suite(options.suite):
        assert isinstance(problem, ConvProblem)
        candidate = tuned.get(format_problem(problem))
        if candidate is None and options.tuned:
            print(f"not tuned: {format_problem(problem)}")
            continue
        if candidate is None:
            candidate = found_candidate(problem, options.device, options.budget)
        line = compare(executor, problem, candidate)
        lines.append(line)
        share = "" if line.roofline is None else f"{line.roofline:7.1%}"
        print(
            f"{line.ratio:6.2f} {line.ours_ms:9.4f} {line.pytorch_ms:9.4f} {share} "
            f"{line.candidate.partition('{')[0]:22} {line.problem}",
            flush=True,
        )
    print("\nPyTorch's time over ours, geometric means")
    for title, group in groups(lines).items():
        ratios = [line.ratio for line in group]
        print(f"{title:12} {len(group):4} problems {geometric_mean(ratios):6.3f}  "
              f"worst {min(ratios):.3f}  best {max(ratios):.3f}")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps([asdict(line) for line in lines], indent=1))


def groups(lines: list[Line]) -> dict[str, list[Line]]:
    """Lines by type, and by type and direction."""
    grouped: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        grouped[line.dtype].append(line)
        grouped[f"{line.dtype} {line.direction}"].append(line)
    return dict(sorted(grouped.items()))


if __name__ == "__main__":
    main()
