"""How long it takes to warm a user database with many problems.

Run with ``python benchmarks/warm.py [problems] [arch]``. One thread, everything included but the
start of Python and the system database, which is read only where a MIOpen is installed.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from itertools import pairwise, product
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.driver import format_driver_line
from foretune.miopen.names import usual_compute_units
from foretune.miopen.predictor import MIOpenPredictor
from foretune.miopen.sources import read_source
from foretune.miopen.user_db import parse_release
from foretune.miopen.warm import Target, decide, warm

RELEASE = "3.3.0.0123456"
CHANNELS = (64, 128, 256, 320, 512, 640, 1024)
SIZES = (7, 14, 28, 32, 48, 56, 64, 96, 128)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


def layers(count: int) -> list[ConvProblem]:
    """Give problems of convolutional networks, all different."""
    kinds = list(
        product("FBW", BATCHES, CHANNELS, CHANNELS, SIZES, (1, 3), (1, 2), ("FP16", "BF16", "FP32"))
    )
    return [
        ConvProblem(
            direction,
            batch,
            in_channels,
            (size, size),
            out_channels,
            (filt, filt),
            (stride, stride),
            (filt // 2, filt // 2),
            dtype=dtype,
        )
        for direction, batch, in_channels, out_channels, size, filt, stride, dtype in random.Random(
            0
        ).sample(kinds, count)
    ]


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    arch = sys.argv[2] if len(sys.argv) > 2 else "gfx942"
    units = usual_compute_units(arch)
    assert units
    release = parse_release(RELEASE)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "program.log")
        log.write_text("".join(f"{format_driver_line(problem)}\n" for problem in layers(count)))
        times = [time.perf_counter()]
        source = read_source(log)
        times.append(time.perf_counter())
        target = Target(arch, units, release, folder)
        predictor = MIOpenPredictor(arch, units, miopen=release.solvers)
        answers = decide(source.counts, predictor, target)
        times.append(time.perf_counter())
        changes = warm(answers, target)
        times.append(time.perf_counter())
    read, decided, written = (after - before for before, after in pairwise(times))
    total = times[-1] - times[0]
    print(
        f"{arch}: {count} problems in {total:.2f} s, {count / total:.0f} a second "
        f"(log read {read:.2f} s, decided {decided:.2f} s, written {written:.2f} s); "
        f"{len(changes.written)} entries and {changes.configs} configs written"
    )


if __name__ == "__main__":
    main()
