"""What a call of `foretune.conv2d` costs beside the work itself, on this machine's processor.

`python benchmarks/call_overhead.py`. Times are of the calling thread, so that a busy machine hardly
shows: the best of some rounds, in microseconds, for a tiny convolution whose shape is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import foretune
from foretune.functional.arrays import form_of
from foretune.functional.conv_arguments import Geometry, forward
from foretune.kernels.compute import packed_call
from foretune.predictor.select import selector

ROUNDS, CALLS = 20, 100


def microseconds(call: Callable[[], object]) -> float:
    """Time of one call."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.thread_time()
        for _ in range(CALLS):
            call()
        best = min(best, time.thread_time() - start)
    return 1e6 * best / CALLS


def main() -> None:
    """Print the parts of a call and the whole."""
    x, w = np.ones((1, 8, 8, 8), np.float32), np.ones((8, 8, 3, 3), np.float32)
    y = foretune.conv2d(x, w, padding=1, mode="FAST")
    geometry, forms = Geometry(2, padding=1), (form_of(x, "x"), form_of(w, "w"))
    problem = forward(geometry, *forms, None).problem
    chosen = selector("cpu").choose(problem, mode="FAST")
    launch = packed_call(problem, "cpu", chosen.solver, chosen.config or None, 0.0, False, None)
    addresses = {name: array.ctypes.data for name, array in (("x", x), ("w", w), ("y", y))}
    parts = {
        "reading two arrays": lambda: (form_of(x, "x"), form_of(w, "w")),
        "arguments to problem": lambda: forward(geometry, *forms, None),
        "decision": lambda: selector("cpu").choose(problem, mode="FAST"),
        "launch and wait (OpenCL)": lambda: launch(addresses),
        "foretune.conv2d": lambda: foretune.conv2d(x, w, padding=1, mode="FAST"),
    }
    for name, call in parts.items():
        print(f"{name}: {microseconds(call):.1f} us")


if __name__ == "__main__":
    main()
