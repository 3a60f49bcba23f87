"""Every solver compiled for AMD GPUs without one: nothing spills by default, and LDS suffices."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, cast

import pytest

import foretune.kernels
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.gemm.problem import GemmProblem
from foretune.kernels.registry import solvers
from foretune.kernels.runtime import clang
from foretune.kernels.runtime.amd_code import kernel_facts, static_facts
from foretune.kernels.runtime.compiling import Compiler
from foretune.kernels.runtime.device import CompileError, KernelFacts
from foretune.kernels.runtime.properties import amd_properties
from foretune.kernels.runtime.worker import Worker
from foretune.kernels.solver import KernelSource, Solver
from foretune.kernels.static_facts import Compiled, compile_kernels

LOCAL_BYTES = 65536
#: Configs beside the default one, for each solver and arch.
SAMPLE = 3
#: Kernels of one solver and arch at most.
MOST = 24
#: Whether to take all shapes and kinds, which takes long. Else each arch takes one shape of two
#: kinds in three, others than the next arch, so that CI has it done in three minutes.
ALL_PROBLEMS = "FORETUNE_ALL_PROBLEMS" in os.environ
#: Arch -> module that compiles for it. Debian's ROCm is from before gfx942.
ARCHS = {"gfx908": "hip", "gfx90a": "hip", "gfx942": "clang"}
#: Where Debian puts its ROCm, which hip-python looks for by other names.
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")


def _conv_problems() -> Iterator[ConvProblem]:
    shapes: list[dict[str, Any]] = [
        {"filter_size": (3, 3), "padding": (1, 1)},
        {"filter_size": (1, 1)},
        {"filter_size": (3, 3), "stride": (2, 2), "padding": (1, 1)},
        {"filter_size": (11, 11), "padding": (5, 5)},
        {"filter_size": (3, 3), "padding": (1, 1), "groups": 64},
        {"filter_size": (3, 3), "padding": (1, 1), "groups": 4},
        {"in_size": (8, 28, 28), "filter_size": (3, 3, 3), "padding": (1, 1, 1)},
        {"in_channels": 3, "filter_size": (7, 7), "stride": (2, 2), "padding": (3, 3)},
    ]
    for shape, direction, dtype in product(shapes, "FBW", ("FP32", "FP16", "BF16")):
        ndim = len(shape["filter_size"])
        for layout in ("NCHW", "NHWC") if ndim == 2 else ("NCDHW", "NDHWC"):
            fields: dict[str, Any] = {"in_channels": 64, "in_size": (28,) * ndim, **shape}
            yield ConvProblem(
                direction,
                batch=32,
                out_channels=64,
                **fields,
                **cast("Any", dict.fromkeys(("dtype", "weight_dtype", "out_dtype"), dtype)),
                **cast("Any", dict.fromkeys(("layout", "weight_layout", "out_layout"), layout)),
            )


def _gemm_problems() -> Iterator[GemmProblem]:
    sizes = ((4096, 4096, 1024), (64, 64, 100_000))
    dtypes = ("FP32", "FP16", "BF16")
    for size, transposes, dtype in product(sizes, ("NN", "NT", "TN", "TT"), dtypes):
        yield GemmProblem(*size, transposes=transposes, dtype=dtype)


#: Operation -> problems, and what tells their kinds apart.
PROBLEMS = {"conv": tuple(_conv_problems()), "gemm": tuple(_gemm_problems())}
KINDS: dict[str, Callable[[Any], Any]] = {
    "conv": lambda problem: (problem.direction, problem.dtype, problem.layout[-1]),
    "gemm": lambda problem: (problem.transposes, problem.dtype),
}


def _operations() -> list[str]:
    names = [module.name for module in iter_modules(foretune.kernels.__path__) if module.ispkg]
    return [
        name
        for name in names
        if (Path(foretune.kernels.__path__[0]) / name / "solvers" / "__init__.py").exists()
    ]


@cache
def _kernels(solver: Solver[Any], arch: str) -> tuple[frozenset[KernelSource], ...]:
    """Kernels of default configs, for a problem of each kind, and of a sample of others."""
    device = amd_properties(arch)
    operation = next(name for name in PROBLEMS if solver in solvers(name))
    generator = random.Random(f"{solver.id} on {arch}")
    kinds: dict[Any, list[Any]] = {}
    for problem in PROBLEMS[operation]:
        if solver.is_applicable(problem, device):
            kinds.setdefault(KINDS[operation](problem), []).append(problem)
    turn = list(ARCHS).index(arch)
    problems = [
        problem
        for place, kind in enumerate(kinds.values())
        for problem in _some(kind, generator, (place + turn) % 3 == 2 and len(kinds) > 3)
    ]
    plans = [solver.plan(p, solver.default_config(p, device)) for p in problems]
    defaults = _limited({launch.kernel for plan in plans for launch in plan.launches}, SAMPLE)
    sampled: set[KernelSource] = set()
    for problem in generator.sample(problems, min(SAMPLE, len(problems))):
        config = solver.space(problem, device).sample(2, seed=generator.randrange(1000))[-1]
        sampled |= {launch.kernel for launch in solver.plan(problem, config).launches}
    return frozenset(defaults), frozenset(_limited(sampled - defaults, len(defaults)))


def _some(problems: list[Any], generator: random.Random, is_left_out: bool) -> list[Any]:
    if ALL_PROBLEMS:
        return problems
    return [] if is_left_out else [generator.choice(problems)]


def _limited(kernels: set[KernelSource], taken: int = 0) -> set[KernelSource]:
    order = sorted(kernels, key=repr)
    random.Random(0).shuffle(order)
    return kernels if ALL_PROBLEMS else set(order[: MOST - taken])


def _all_solvers() -> list[Solver[Any]]:
    return [solver for operation in _operations() for solver in solvers(operation)]


@pytest.fixture(scope="session")
def rocm_libraries(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder with the names that hip-python loads."""
    library = next(iter(sorted(LIBRARIES.glob("libamdhip64.so.5"))), None)
    if library is None or not list(LIBRARIES.glob("libhiprtc-builtins.so.5")):
        pytest.skip("no HIPRTC: apt-get install libamdhip64-5 libhiprtc-builtins5 rocm-device-libs")
    pytest.importorskip("hip", reason="no hip-python here")
    folder = tmp_path_factory.mktemp("rocm")
    for name in ("libamdhip64.so", "libhiprtc.so"):
        (folder / name).symlink_to(library)
    return str(folder)


@pytest.fixture(scope="session", params=list(ARCHS))
def compiled(
    request: pytest.FixtureRequest,
) -> tuple[str, dict[KernelSource, Compiled]]:
    """Everything, compiled for an arch by two children at a time."""
    arch = request.param
    environment = {}
    if ARCHS[arch] == "clang":
        reason = clang.why_absent()
        if reason is not None:
            pytest.skip(reason)
    else:
        environment["LD_LIBRARY_PATH"] = request.getfixturevalue("rocm_libraries")
    wanted = sorted(
        {kernel for solver in _all_solvers() for part in _kernels(solver, arch) for kernel in part},
        key=repr,
    )
    return arch, dict(compile_kernels(wanted, arch, ARCHS[arch], 2, environment))


every_solver = pytest.mark.parametrize("solver", _all_solvers(), ids=lambda solver: solver.id)


def test_all_operations_have_problems() -> None:
    assert set(_operations()) == set(PROBLEMS)


@every_solver
def test_compiles_for_amd(
    compiled: tuple[str, dict[KernelSource, Compiled]], solver: Solver[Any]
) -> None:
    arch, results = compiled
    defaults, sampled = _kernels(solver, arch)
    if not defaults:
        pytest.skip(f"computes nothing on {arch}")
    for kernel in defaults | sampled:
        facts = results[kernel].facts
        assert facts is not None, f"{kernel}: {results[kernel].reason[:2000]}"
        assert facts.wave_size == 64
        assert facts.local_bytes <= LOCAL_BYTES, f"{kernel} takes {facts.local_bytes} of LDS"
        assert facts.max_threads == kernel.threads
    for kernel in defaults:
        facts = results[kernel].facts
        assert facts is not None
        # Scalar registers without room go into lanes of vector registers, never to memory.
        spilt = (facts.vector_spills, facts.scratch_bytes)
        assert spilt == (0, 0), f"{kernel} spills: {facts}"


USING_SCRATCH = """
__attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, 1024)))
extern "C" void scratching(float* out, int n) {
    __attribute__((shared)) static float shared[512];
    volatile float mine[160];
    mine[n] = out[n];
    shared[n] = mine[n + 1];
    __builtin_amdgcn_s_barrier();
    out[n] = shared[n + 1];
}
"""


def test_scratch_and_local_memory_are_seen() -> None:
    if clang.why_absent() is not None:
        pytest.skip(str(clang.why_absent()))
    code = clang.compiler("gfx90a")(USING_SCRATCH, ())
    facts = static_facts(code)["scratching"]
    assert facts.scratch_bytes >= 160 * 4
    assert facts.local_bytes == 2048
    assert facts.max_threads == 1024
    assert kernel_facts(code, "scratching") == KernelFacts(
        facts.vector_registers, facts.scratch_bytes, facts.local_bytes
    )
    with pytest.raises(CompileError, match="no_such_word"):
        clang.compiler("gfx942")("int f() { return no_such_word; }", ())


@pytest.mark.parametrize("content", [b"", b"no ELF file" * 20, b"\x7fELF\x02\x01\x01" + bytes(57)])
def test_other_files_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="ELF"):
        static_facts(content)


def test_an_arch_that_the_compiler_does_not_know_is_an_answer(rocm_libraries: str) -> None:
    environment = {"LD_LIBRARY_PATH": rocm_libraries}
    with (
        Compiler("hip", ("gfx942",), environment=environment) as compiler,
        pytest.raises(CompileError, match="too old for gfx942"),
    ):
        compiler.compile("", ())


def test_says_that_there_is_no_gpu(
    rocm_libraries: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if Path("/dev/kfd").exists():
        pytest.skip("an AMD GPU's driver is here")
    (tmp_path / "absence.py").write_text(
        "from foretune.kernels.runtime import hip\n"
        "def make():\n"
        "    return lambda _: {'reason': hip.why_absent(), 'count': hip.count()}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with Worker("absence:make", environment={"LD_LIBRARY_PATH": rocm_libraries}) as worker:
        answer = worker.call({}, timeout=60)
    assert answer["reason"].startswith("a ROCm run-time is here, but no AMD GPU")
    assert answer["count"] == 0
