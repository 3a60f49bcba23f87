"""What kernels take of AMD GPUs: occupancy, which kernels are compiled, and the file of facts."""

from __future__ import annotations

import re
import subprocess
from dataclasses import fields, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.cli import main
from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.registry import solvers
from foretune.kernels.runtime import clang
from foretune.kernels.runtime.amd_code import StaticFacts, static_facts, waves_per_simd
from foretune.kernels.runtime.properties import amd_properties
from foretune.kernels.solver import KernelSource
from foretune.kernels.static_facts import COLUMNS, Use, fair_share, used_kernels

FREE = StaticFacts(16, 0, 16, 0, 0, 0, 0, 64, 64)
PROBLEM = ConvProblem("F", 32, 64, (28, 28), 64, (3, 3), padding=(1, 1))
needs_clang = pytest.mark.skipif(clang.why_absent() is not None, reason=str(clang.why_absent()))


@pytest.mark.parametrize(
    ("registers", "waves"),
    [(64, 8), (72, 7), (80, 6), (96, 5), (128, 4), (168, 3), (256, 2), (512, 1), (65, 7), (257, 1)],
)
def test_occupancy_is_as_amd_tells_for_cdna_2(registers: int, waves: int) -> None:
    """The table of AMD's "Register pressure in AMD CDNA2 GPUs"."""
    assert waves_per_simd(replace(FREE, vector_registers=registers), "gfx90a") == waves


@pytest.mark.parametrize(
    ("changed", "arch", "waves"),
    [
        ({"vector_registers": 128}, "gfx908", 2),
        ({"scalar_registers": 102}, "gfx908", 7),
        ({"scalar_registers": 88}, "gfx908", 9),
        ({"local_bytes": 65536}, "gfx942", 0.25),
        ({"local_bytes": 16385}, "gfx942", 0.75),
        ({"local_bytes": 32768, "max_threads": 256}, "gfx942", 2),
        # Sixteen blocks have barriers.
        ({"max_threads": 128}, "gfx908", 8),
        # Two blocks of twelve waves have places, a third half of them.
        ({"max_threads": 768}, "gfx90a", 6),
        ({}, "gfx1100", None),
    ],
)
def test_everything_limits_occupancy(
    changed: dict[str, int], arch: str, waves: float | None
) -> None:
    assert waves_per_simd(replace(FREE, **changed), arch) == waves


@given(st.integers(1, 512), st.integers(1, 102), st.integers(0, 65536), st.integers(1, 1024))
@settings(deadline=None, max_examples=100)
def test_who_takes_more_has_no_higher_occupancy(
    vector: int, scalar: int, local: int, threads: int
) -> None:
    facts = replace(
        FREE,
        vector_registers=vector,
        scalar_registers=scalar,
        local_bytes=local,
        max_threads=threads,
    )
    for arch, most in (("gfx908", 10), ("gfx90a", 8)):
        waves = waves_per_simd(facts, arch)
        assert waves is not None
        assert 0 <= waves <= most
        less = waves_per_simd(replace(facts, vector_registers=max(1, vector // 2)), arch)
        assert less is not None
        assert waves <= less


USING_REGISTERS = """
#define N {count}
extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(64, 64)))
void many(float* out) {{
    float mine[N];
    for (int i = 0; i < N; ++i) mine[i] = out[i * i];
    __builtin_amdgcn_s_barrier();
    for (int round = 0; round < 9; ++round)
        for (int i = 0; i < N; ++i) mine[i] = mine[i] * mine[(i + 1) % N] + out[round];
    for (int i = 0; i < N; ++i) out[i] = mine[i];
}}
"""


@needs_clang
@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx942"])
@pytest.mark.parametrize("count", [8, 60, 120])
def test_occupancy_is_what_the_compiler_tells(tmp_path: Path, arch: str, count: int) -> None:
    source = USING_REGISTERS.format(count=count)
    facts = static_facts(clang.compiler(arch)(source, ()))["many"]
    path = tmp_path / "kernel.hip"
    path.write_text(source)
    options = ["-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-O3"]
    remark = "-Rpass-analysis=kernel-resource-usage"
    compiler = clang._path()
    assert compiler is not None
    told = subprocess.run(
        [compiler, *options, f"--offload-arch={arch}", remark, "-S", "-o", "/dev/null", path],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    (occupancy,) = re.findall(r"Occupancy \[waves/SIMD\]: (\d+)", told)
    assert waves_per_simd(facts, arch) == int(occupancy)


def test_kernels_of_default_configs_and_of_others_are_collected() -> None:
    device = amd_properties("gfx90a")
    defaults = used_kernels([PROBLEM], device, configs=0)
    applicable = {known.id for known in solvers("conv") if known.is_applicable(PROBLEM, device)}
    assert {name for use in defaults.values() for name in use.solvers} == applicable
    assert all(use.is_default for use in defaults.values())
    more = used_kernels([PROBLEM], device, configs=3)
    assert set(defaults) < set(more)
    assert {kernel for kernel, use in more.items() if use.is_default} == set(defaults)
    assert used_kernels([PROBLEM], device, configs=3) == more


def test_every_function_has_its_turn() -> None:
    kernels = {
        KernelSource("a.cl", name, (("THREADS", 64), ("TILE", tile))): Use(("A",), tile < 2)
        for name, tiles in (("many", 50), ("few", 2))
        for tile in range(tiles)
    }
    chosen = fair_share(kernels, 6)
    assert len(chosen) == 6
    assert sum(kernel.name == "few" for kernel in chosen) == 2
    assert sum(kernels[kernel].is_default for kernel in chosen if kernel.name == "many") == 2
    assert set(fair_share(kernels, 1000)) == set(kernels)


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    path = tmp_path / "problems.txt"
    path.write_text("1-8-8-1x1-8-8-8-2-0x0-1x1-1x1-0-NCHW-FP32-F\n")
    return path


@needs_clang
def test_the_command_writes_facts(
    problems: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "facts.parquet"
    words = ["--arch", "gfx942", "--suite", str(problems), "--out", str(out)]
    assert main(["facts", *words, "--configs", "0", "--kernels", "3", "--workers", "1"]) == 0
    printed = capsys.readouterr().out
    rows = pq.read_table(out).to_pylist()
    assert len(rows) == 3
    for row in rows:
        assert set(row) == set(COLUMNS)
        assert row["is_default"]
        assert row["wave_size"] == 64
        assert row["max_threads"] == row["threads"]
        assert f"THREADS={row['threads']}" in row["macros"]
        assert 0 < row["waves_per_simd"] <= 8
        assert row["reason"] == ""
        assert row["name"] in printed
    text = out.with_suffix(".md").read_text()
    for words_of_it in ("gfx942", "clang", "3 of ", *COLUMNS):
        assert words_of_it in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--arch", "gfx000"], "unknown arch"),
        (["--arch", "gfx942", "--configs", "-1"], "expected at least 0"),
        (["--arch", "gfx942", "--kernels", "0"], "expected at least 1"),
        (["--arch", "gfx942", "--workers", "0"], "expected at least 1"),
        (["--arch", "gfx942", "--out", "facts.csv"], "ends in .parquet"),
        (["--arch", "gfx942", "--out", "no/facts.parquet"], "no such folder"),
    ],
)
def test_wrong_words_are_told(
    problems: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    complete = ["facts", "--suite", str(problems), "--out", "facts.parquet", *words]
    assert main(complete) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("facts*"))


def test_an_arch_that_nothing_compiles_for_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from foretune.kernels import static_facts as module

    monkeypatch.setattr(module, "COMPILERS", ("absent",))
    with pytest.raises(InputError, match="nothing here compiles for it; absent: "):
        module.compiler_for("gfx942")


@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx942"])
def test_facts_that_come_with_foretune_are_sound(arch: str) -> None:
    path = Path(__file__).parents[2] / "data" / "kernels" / arch / "static.parquet"
    rows = pq.read_table(path).to_pylist()
    names = [field.name for field in fields(StaticFacts)]
    assert sum(row["is_default"] for row in rows) > 50
    assert {row["arch"] for row in rows} == {arch}
    # Every solver has kernels there.
    ids = {name for row in rows for name in row["solvers"].split(",")}
    assert ids == {known.id for known in solvers("conv")}
    for row in rows:
        assert set(row) == set(COLUMNS)
        facts = StaticFacts(**{name: row[name] for name in names})
        assert facts.local_bytes <= amd_properties(arch).local_memory
        assert waves_per_simd(facts, arch) == row["waves_per_simd"] > 0
        if row["is_default"]:
            # Scalar registers spill into lanes of vector registers, which costs no memory.
            assert facts.scratch_bytes == facts.vector_spills == 0
