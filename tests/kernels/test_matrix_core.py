"""The convolution on matrix cores, run without any: OpenCL work-items play the lanes of a wave."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.registry import solver
from foretune.kernels.runtime.device import Kernel, open_device
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.runtime.source import prelude, whole_source
from foretune.kernels.solver import KernelSource, source_folder
from foretune.kernels.space import Config
from tests.kernels.conv_strategies import conv_problems
from tests.kernels.processor import needs_processor
from tests.kernels.test_conv_contract import check_against_reference

SOLVER = solver("conv", "ConvMatrixCoreGemm")
DEVICES = {
    "sm_80": DeviceProperties("cuda", "", "sm_80", 108, 32, 49152, 1024),
    "sm_90": DeviceProperties(
        "cuda", "", "sm_90", 132, 32, 49152, 1024, dynamic_local_memory=232448
    ),
    "gfx908": DeviceProperties("hip", "", "gfx908:sramecc+:xnack-", 120, 64, 65536, 1024),
    "gfx90a": DeviceProperties("hip", "", "gfx90a", 110, 64, 65536, 1024),
}
HEADER = (source_folder() / "runtime/matrix.h").read_text(encoding="utf-8")
EMULATION = Path(__file__).with_name("matrix_emulation.h").read_text(encoding="utf-8")

every_device = pytest.mark.parametrize("arch", DEVICES)


class EmulatingExecutor(Executor):
    """Builds kernels of matrix cores for a device that has none."""

    def __init__(self) -> None:
        super().__init__(open_device("cpu"))
        self._emulated: dict[KernelSource, Kernel] = {}

    def kernel(self, wanted: KernelSource) -> Kernel:
        if wanted not in self._emulated:
            source = whole_source(wanted.file, "opencl")
            assert HEADER in source
            source = source.replace(HEADER, HEADER + EMULATION)
            binary = self.device.compile(source, wanted.macros)
            self._emulated[wanted] = self.device.load(binary, wanted.name)
        return self._emulated[wanted]


@cache
def emulator() -> EmulatingExecutor:
    return EmulatingExecutor()


def is_small(config: Mapping[str, int]) -> bool:
    """Whether a processor emulates a config in little time."""
    sums = config["TILE_M"] * config["TILE_N"]
    return sums <= 64 * 64 and config["WAVES_M"] * config["WAVES_N"] <= 4


def problems_of(arch: str) -> st.SearchStrategy[ConvProblem]:
    return conv_problems().filter(lambda problem: SOLVER.is_applicable(problem, DEVICES[arch]))


@needs_processor
@pytest.mark.parametrize("arch", ["sm_90", "gfx90a"])
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(data=st.data())
def test_agrees_with_float64(arch: str, data: st.DataObject) -> None:
    problem = data.draw(problems_of(arch), label="problem")
    space = SOLVER.space(problem, DEVICES[arch])
    drawn = filter(is_small, space.sample(200, seed=data.draw(st.integers(0, 9))))
    configs = list(islice(drawn, 4)) or [next(config for config in space if is_small(config))]
    config = data.draw(st.sampled_from(configs), label="config")
    alpha, beta = data.draw(st.sampled_from(((1.0, 0.0), (0.5, -2.0))), label="scales")
    check_against_reference(SOLVER, problem, config, emulator(), alpha, beta)


@needs_processor
@pytest.mark.parametrize("direction", "FBW")
def test_wgmma_reads_what_was_copied(direction: str) -> None:
    # Tiles that are wider than a block of 8 chunks, along depth and across.
    problem = ConvProblem(
        *(direction, 1, 136, (5, 6), 72, (3, 3)), padding=(1, 1), dtype="FP16", layout="NHWC"
    )
    config = Config(
        {"MATRIX": 64, "TILE_M": 64, "TILE_N": 128, "TILE_K": 128, "WAVES_M": 1, "WAVES_N": 1}
        | {"STAGES": 3, "BAND": 1, "SPLIT_K": 1, "WAVE": 32}
    )
    assert SOLVER.space(problem, DEVICES["sm_90"]).why_not(config) is None
    check_against_reference(SOLVER, problem, config, emulator())


@needs_processor
@pytest.mark.parametrize("splits", [2, 16])
def test_adds_up_splits(splits: int) -> None:
    problem = ConvProblem("W", 3, 16, (16, 12), 16, (1, 1), dtype="BF16", layout="NHWC")
    config = Config(
        {"MATRIX": 16, "TILE_M": 16, "TILE_N": 16, "TILE_K": 16, "WAVES_M": 1, "WAVES_N": 1}
        | {"STAGES": 1, "BAND": 1, "SPLIT_K": splits, "WAVE": 64}
    )
    assert SOLVER.space(problem, DEVICES["gfx90a"]).why_not(config) is None
    check_against_reference(SOLVER, problem, config, emulator(), 2.0, 0.5)


def run_on_cpu(kernel: str, macros: dict[str, int], count: int) -> npt.NDArray[np.int32]:
    """Run a kernel `probe(GLOBAL int* out)` that reads the header's macros."""
    device = emulator().device
    source = "\n".join((prelude("opencl"), HEADER, kernel))
    binary = device.compile(source, [*macros.items()])
    out = np.zeros(count, np.int32)
    buffer = device.upload(out)
    device.load(binary, "probe").bind((1, 1, 1), macros["THREADS"], [buffer])()
    device.synchronize()
    device.read(buffer, out)
    buffer.free()
    return out


RESULT_PROBE = """
KERNEL probe(GLOBAL int* out) {
    for (int i = 0; i < RESULTS; ++i) {
        out[(THREAD * RESULTS + i) * 2] = RESULT_ROW(THREAD, i);
        out[(THREAD * RESULTS + i) * 2 + 1] = RESULT_COLUMN(THREAD, i);
    }
}
"""


def documented_results(wave: int, matrix: int, columns: int) -> list[tuple[int, int]]:
    """Rows and columns of a wave's accumulators, as the vendors' manuals have them."""
    places = []
    for lane in range(wave):
        for i in range(matrix * columns // wave):
            if wave == 64 and matrix == 16:
                places.append((4 * (lane // 16) + i, lane % 16))
            elif wave == 64:
                places.append((8 * (i // 4) + 4 * (lane // 32) + i % 4, lane % 32))
            else:
                warp, thread = divmod(lane, 32)
                row = 16 * warp + thread // 4 + (8 if i % 4 >= 2 else 0)
                places.append((row, 8 * (i // 4) + 2 * (thread % 4) + i % 2))
    return places


@needs_processor
@pytest.mark.parametrize(
    ("wave", "matrix", "columns"), [(64, 16, 16), (64, 32, 32), (32, 16, 16), (128, 64, 64)]
)
def test_results_lie_as_documented(wave: int, matrix: int, columns: int) -> None:
    macros = {"WAVE": wave, "MATRIX": matrix, "WAVE_N": columns, "THREADS": wave}
    # wgmma's descriptions need to know how tiles lie.
    macros |= {"A_BY_DEPTH": 0, "B_BY_DEPTH": 0}
    out = run_on_cpu(
        RESULT_PROBE.replace("KERNEL", "#define TILE_ADDRESS(tile) 0\nKERNEL"),
        macros,
        2 * matrix * columns,
    )
    found = [tuple(place) for place in out.reshape(-1, 2).tolist()]
    assert found == documented_results(wave, matrix, columns)
    assert len(set(found)) == matrix * columns


@needs_processor
@pytest.mark.parametrize("matrix", [16, 32])
def test_operands_multiply_as_amd_documents(matrix: int) -> None:
    kernel = """
    KERNEL probe(GLOBAL int* out) {
        for (int i = 0; i < 4; ++i) {
            out[(THREAD * 4 + i) * 2] = OPERAND_LINE(THREAD);
            out[(THREAD * 4 + i) * 2 + 1] = OPERAND_DEPTH(THREAD, i);
        }
    }
    """
    macros = {"WAVE": 64, "MATRIX": matrix, "THREADS": 64}
    loaded = run_on_cpu(kernel, macros, 512).reshape(64, 4, 2)
    results = run_on_cpu(RESULT_PROBE, macros, 2 * matrix * matrix).reshape(64, -1, 2)
    depth = 256 // matrix
    generator = np.random.default_rng(matrix)
    a = generator.integers(-9, 9, (matrix, depth))
    b = generator.integers(-9, 9, (depth, matrix))
    # What the instruction sees in its registers, ...
    a_lanes = a[loaded[..., 0], loaded[..., 1]]
    b_lanes = b[loaded[..., 1], loaded[..., 0]]
    # ... what it takes them for, and where it puts the product.
    a_seen, b_seen = np.zeros_like(a), np.zeros_like(b)
    for lane in range(64):
        for j in range(4):
            a_seen[lane % matrix, 4 * (lane // matrix) + j] = a_lanes[lane, j]
            b_seen[4 * (lane // matrix) + j, lane % matrix] = b_lanes[lane, j]
    product = a_seen @ b_seen
    rows, columns = np.array(documented_results(64, matrix, matrix)).T.reshape(2, 64, -1)
    stored: npt.NDArray[Any] = np.zeros((matrix, matrix), int)
    stored[results[..., 0], results[..., 1]] = product[rows, columns]
    assert (stored == a @ b).all()


@needs_processor
@pytest.mark.parametrize("chunks", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("lines", [16, 64])
def test_neighbouring_lines_stand_in_different_banks(lines: int, chunks: int) -> None:
    kernel = f"""
    KERNEL probe(GLOBAL int* out) {{
        for (int i = THREAD; i < {lines * chunks}; i += THREADS)
            out[i] = TILE_PLACE(i / {chunks}, i % {chunks}, {lines}, {chunks});
    }}
    """
    places = run_on_cpu(kernel, {"WAVE": 32, "THREADS": 64}, lines * chunks)
    assert sorted(places.tolist()) == list(range(0, lines * chunks * 8, 8)), "each chunk once"
    banks = places.reshape(lines // 8, 8, chunks) // 8 % 8
    assert (np.sort(banks, axis=1) == np.arange(8)[:, None]).all()


@every_device
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_default_is_valid(arch: str, data: st.DataObject) -> None:
    problem = data.draw(problems_of(arch))
    space = SOLVER.space(problem, DEVICES[arch])
    assert space.why_not(space.default) is None
    plan = SOLVER.plan(problem, space.default)
    assert all(size < 65536 for launch in plan.launches for size in launch.grid[1:])


@every_device
@pytest.mark.parametrize("direction", "FBW")
def test_has_hundreds_of_configs(arch: str, direction: str) -> None:
    problem = ConvProblem(
        *(direction, 32, 128, (28, 28), 128, (3, 3)), padding=(1, 1), dtype="FP16", layout="NHWC"
    )
    assert sum(1 for _ in islice(SOLVER.space(problem, DEVICES[arch]), 500)) == 500


@pytest.mark.parametrize(
    ("backend", "arch"), [("opencl", "cpu"), ("cuda", "sm_75"), ("hip", "gfx906")]
)
def test_needs_matrix_cores(backend: str, arch: str) -> None:
    device = DeviceProperties(backend, "", arch, 8, 32, 65536, 1024)
    problem = ConvProblem("F", 1, 8, (8, 8), 8, (3, 3), dtype="FP16", layout="NHWC")
    assert "no matrix cores" in str(SOLVER.why_never(device))
    assert "no matrix cores" in str(SOLVER.why_not(problem, device))


def test_takes_16_bits_alone() -> None:
    problem = ConvProblem("F", 1, 8, (8, 8), 8, (3, 3), layout="NHWC")
    assert (
        SOLVER.why_not(problem, DEVICES["sm_90"])
        == "computes FP16, BF16, all tensors alike, not FP32"
    )
