"""How long an answer takes: again, new, and from process start.

Run with ``python benchmarks/predict_latency.py [arch]``. Medians, warmed up, one thread; process
times are differences to a bare Python started in turn with them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.driver import format_driver_line
from foretune.miopen.predictor import MIOpenPredictor

#: Input channels, size, output channels, filter and stride of the bottleneck blocks of a ResNet.
STAGES = ((64, 56, 256, 1), (256, 28, 512, 2), (512, 14, 1024, 2), (1024, 7, 2048, 2))
FIRST = "import foretune; foretune.predict({key!r}, arch={arch!r})"


def network(batch: int) -> list[ConvProblem]:
    """Give 20 convolutions of a ResNet in three directions: 60 problems."""
    layers = [(3, 224, 64, 7, 2), (64, 56, 64, 1, 1)]
    for channels, size, out, stride in STAGES:
        middle = out // 4
        layers += [
            (channels, size * stride, middle, 1, 1),
            (middle, size * stride, middle, 3, stride),
            (middle, size, out, 1, 1),
            (channels, size * stride, out, 1, stride),
        ]
    layers += [(2048, 7, 512, 1, 1), (512, 7, 512, 3, 1)]
    return [
        ConvProblem(
            direction,
            batch,
            channels,
            (size, size),
            out,
            (filt, filt),
            (stride, stride),
            (filt // 2, filt // 2),
            dtype="FP16",
        )
        for channels, size, out, filt, stride in layers
        for direction in "FBW"
    ]


def microseconds(work: Callable[[], object], count: int) -> float:
    """Time a call that does `count` things, in microseconds for each."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) / count * 1e6


def each_of(predictor: MIOpenPredictor, problems: list[ConvProblem]) -> None:
    """Ask one problem after the other."""
    for problem in problems:
        predictor.predict(problem)


def process_seconds(commands: dict[str, list[str]], rounds: int = 15) -> dict[str, float]:
    """Give the median wall time of each command, all of them in turn."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    # Installing compiles the modules; where a checkout runs, the first round does.
    surroundings = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(rounds):
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=surroundings)
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def main() -> None:
    """Measure and print."""
    arch = sys.argv[1] if len(sys.argv) > 1 else "gfx942"
    predictor = MIOpenPredictor(arch)
    for batch in range(1, 40):
        each_of(predictor, network(batch))
    rounds = [list(dict.fromkeys(network(batch))) for batch in range(100, 140)]
    new = [microseconds(lambda p=p: each_of(predictor, p), len(p)) for p in rounds[:20]]
    together = [microseconds(lambda p=p: predictor.predict_many(p), len(p)) for p in rounds[20:]]
    known = rounds[-1][0]
    again = [
        microseconds(lambda: [predictor.predict(known) for _ in range(1000)], 1000)
        for _ in range(20)
    ]
    print(f"{arch}: the same problem again {statistics.median(again):.2f} us")
    print(
        f"{arch}: a new problem {statistics.median(new):.0f} us, each of a network's asked "
        f"together {statistics.median(together):.0f} us (with workspace; configs are found when "
        "looked at)"
    )
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "network.txt")
        lines.write_text("".join(f"{format_driver_line(p)}\n" for p in network(64)))
        command = str(Path(sys.executable).with_name("foretune"))
        key = format_driver_line(network(64)[0])
        times = process_seconds(
            {
                "bare": [sys.executable, "-c", "pass"],
                "numpy": [sys.executable, "-c", "import numpy"],
                "first": [sys.executable, "-c", FIRST.format(key=key, arch=arch)],
                "command": [command, "predict", "--arch", arch, "--from", str(lines)],
            }
        )
    print(f"{arch}: bare Python {times['bare']:.3f} s, with numpy {times['numpy']:.3f} s")
    print(
        f"{arch}: import and first answer {times['first'] - times['bare']:.3f} s over bare Python"
    )
    print(f"{arch}: foretune predict on 60 problems {times['command']:.3f} s")


if __name__ == "__main__":
    main()
