"""PoCL compiles a second time at launches; none of that may happen once a kernel was built."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from foretune.kernels.runtime import opencl
from foretune.kernels.runtime.device import open_device


def _pocl_device() -> str | None:
    for index in range(opencl.count_processors()):
        if "Portable" in open_device(f"cpu:{index}").properties.driver:
            return f"cpu:{index}"
    return None


LAUNCH = """
import sys
import numpy as np
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.registry import solver, tensors
from foretune.kernels.runtime.device import open_device
from foretune.kernels.runtime.executor import Executor

executor = Executor(open_device(sys.argv[1]))
device = executor.device
naive = solver("conv", "ConvNaive")
for size in map(int, sys.argv[2:]):
    # From 65,536 blocks of 64 threads on, PoCL takes other code.
    problem = ConvProblem("F", 1, 1, (size, size), 1, (1, 1))
    buffers = {
        tensor.name: device.upload(np.ones(tensor.memory_shape, np.float32))
        for tensor in tensors(problem)
    }
    plan = naive.plan(problem, naive.default_config(problem, device.properties))
    executor.prepare(plan, buffers)()
    out = np.empty((size, size), np.float32)
    device.read(buffers["y"], out)
    assert (out == 1).all()
print(executor.built)
"""


@pytest.fixture
def launch(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Compute squares of some sizes in a new process; give what was built and linked."""
    device = _pocl_device()
    if device is None:
        pytest.skip("no PoCL here; pip install pocl-binary-distribution")
    linker = shutil.which("ld")
    if linker is None:
        pytest.skip("PoCL needs ld; apt-get install binutils gcc")
    (tmp_path / "bin").mkdir()
    counting = tmp_path / "bin" / "ld"
    counting.write_text(f'#!/bin/sh\necho run >>{tmp_path}/runs\nexec {linker} "$@"\n')
    counting.chmod(counting.stat().st_mode | stat.S_IXUSR)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "FORETUNE_CACHE": str(tmp_path / "cache"),
    }

    def run(pocl_cache: str, *sizes: int) -> tuple[int, int]:
        runs = tmp_path / "runs"
        runs.write_text("")
        done = subprocess.run(
            [sys.executable, "-c", LAUNCH, device, *map(str, sizes)],
            env={**environment, "POCL_CACHE_DIR": str(tmp_path / pocl_cache)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return int(done.stdout), len(runs.read_text().split())

    return run


def test_new_shapes_and_processes_link_nothing(launch) -> None:  # type: ignore[no-untyped-def]
    built, linked = launch("first", 5)
    assert built == 1
    assert linked > 0, "the linker's runs are not counted"
    # Small grids and large ones, with nothing but foretune's own binaries.
    assert launch("second", 5, 9, 2100) == (0, 0)
