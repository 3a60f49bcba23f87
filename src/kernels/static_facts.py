"""What foretune's own kernels take of AMD GPUs, told by the compilers: no GPU is needed.

The kernels are those of the default configs of all problems of a list, and of a sample of each
solver's space. Needs the extra `tune`.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from foretune.errors import InputError
from foretune.files import replace_file
from foretune.kernels.problem import Problem
from foretune.kernels.registry import solvers
from foretune.kernels.runtime.amd_code import StaticFacts, static_facts, waves_per_simd
from foretune.kernels.runtime.compiling import Compiler
from foretune.kernels.runtime.device import CompileError
from foretune.kernels.runtime.properties import DeviceProperties, amd_properties
from foretune.kernels.runtime.source import whole_source
from foretune.kernels.runtime.worker import Worker, WorkerError
from foretune.kernels.solver import KernelSource, Solver
from foretune.kernels.space import Config

#: Modules of `foretune.kernels.runtime` that compile for AMD GPUs, the preferred first.
COMPILERS = ("hip", "clang")
#: Shows whether a compiler knows an arch.
_NOTHING = 'extern "C" __attribute__((global)) void nothing() {}'

#: What each column holds, for the datasheet.
COLUMNS = {
    "arch": "compiled for it",
    "file": "source below foretune/kernels",
    "name": "the kernel in it",
    "macros": "definitions that it was compiled with",
    "solvers": "ids of the solvers that launch it, for the problems and configs looked at",
    "is_default": "whether a default config launches it",
    "threads": "threads of a block",
    "vector_registers": "VGPRs of a thread; AGPRs are counted in where they share a file",
    "accumulation_registers": "AGPRs of a thread",
    "scalar_registers": "SGPRs of a wave",
    "vector_spills": "VGPRs that had no room",
    "scalar_spills": "SGPRs that had no room; they go into lanes of VGPRs",
    "scratch_bytes": "memory of a thread for spills and arrays",
    "local_bytes": "LDS of a block",
    "wave_size": "threads of a wave",
    "max_threads": "threads of a block that it was compiled for",
    "waves_per_simd": "occupancy: waves that a SIMD holds at a time, as its registers, LDS, "
    "barriers and places for waves allow; null where an arch's limits aren't known",
    "reason": "why it can't be compiled; empty if it can",
}


@dataclass(frozen=True)
class Use:
    """Who launches a kernel.

    Parameters
    ----------
    solvers : tuple of str
        Ids.
    is_default : bool
        Whether a default config does.
    """

    solvers: tuple[str, ...] = ()
    is_default: bool = False


@dataclass(frozen=True)
class Compiled:
    """Facts of a kernel, or the reason that there are none."""

    facts: StaticFacts | None
    reason: str = ""


def used_kernels(
    problems: Iterable[Problem], device: DeviceProperties, configs: int = 1, seed: int = 0
) -> dict[KernelSource, Use]:
    """Collect the kernels that problems need.

    Parameters
    ----------
    problems : iterable of Problem
    device : DeviceProperties
    configs : int, default 1
        Of each solver and problem, beside the default one.
    seed : int, default 0
        Draws them.

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> problem = ConvProblem("F", 1, 8, (8, 8), 8, (3, 3))
    >>> kernels = used_kernels([problem], amd_properties("gfx90a"), configs=0)
    >>> kernels[next(kernel for kernel in kernels if kernel.name == "conv_direct")]
    Use(solvers=('ConvDirect',), is_default=True)
    """
    generator = random.Random(seed)
    users: dict[KernelSource, dict[str, None]] = defaultdict(dict)
    defaults: set[KernelSource] = set()
    for problem in problems:
        for solver in solvers(problem.operation):
            if not solver.is_applicable(problem, device):
                continue
            default = solver.default_config(problem, device)
            for config in (default, *_sampled(solver, problem, device, configs, generator)):
                for launch in solver.plan(problem, config).launches:
                    users[launch.kernel][solver.id] = None
                    if config == default:
                        defaults.add(launch.kernel)
    return {kernel: Use(tuple(ids), kernel in defaults) for kernel, ids in users.items()}


def _sampled(
    solver: Solver[Any],
    problem: Problem,
    device: DeviceProperties,
    count: int,
    generator: random.Random,
) -> list[Config]:
    if count == 0:
        return []
    # The first of a sample is the default one.
    seed = generator.randrange(1 << 30)
    return solver.space(problem, device).sample(count + 1, seed=seed)[1:]


def fair_share(kernels: Mapping[KernelSource, Use], most: int, seed: int = 0) -> list[KernelSource]:
    """Choose kernels so that every function has its turn, with default configs and others.

    Parameters
    ----------
    kernels : mapping of KernelSource to Use
    most : int
    seed : int, default 0
        Shuffles.
    """
    order = sorted(kernels, key=repr)
    random.Random(seed).shuffle(order)
    groups: dict[tuple[str, str, bool], list[KernelSource]] = defaultdict(list)
    for kernel in order:
        groups[kernel.file, kernel.name, kernels[kernel].is_default].append(kernel)
    turns = (kernel for turn in zip_longest(*groups.values()) for kernel in turn)
    return list(islice((kernel for kernel in turns if kernel is not None), most))


def compile_kernels(
    kernels: Sequence[KernelSource],
    arch: str,
    backend: str,
    workers: int = 1,
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[KernelSource, Compiled]]:
    """Compile kernels for an AMD GPU in child processes, and read what they take.

    Parameters
    ----------
    kernels : sequence of KernelSource
    arch : str
    backend : str
        One of `COMPILERS`.
    workers : int, default 1
        Child processes.
    environment : mapping, optional
        Variables to set for them.
    """
    with Compiler(backend, (arch,), environment=environment) as compiler:
        jobs = [(whole_source(kernel.file, "hip"), kernel.macros) for kernel in kernels]
        for index, result in compiler.compile_many(jobs, workers):
            kernel = kernels[index]
            if isinstance(result, CompileError):
                yield kernel, Compiled(None, str(result))
            else:
                yield kernel, Compiled(static_facts(result)[kernel.name])


def compiler_for(arch: str) -> tuple[str, str]:
    """Find a compiler on this machine that knows an arch.

    Returns
    -------
    backend : str
        One of `COMPILERS`.
    version : str
        Its name and version.

    Raises
    ------
    InputError
        If there is none; the message says why of each.
    """
    reasons = []
    for backend in COMPILERS:
        try:
            with Compiler(backend, (arch,)) as compiler:
                compiler.compile(_NOTHING, ())
            with Worker(f"{__name__}:answer_version", backend) as worker:
                return backend, worker.call({}, timeout=60)["version"]
        except (CompileError, WorkerError) as error:
            reasons.append(f"{backend}: {error}")
    raise InputError(f"nothing here compiles for it; {'; '.join(reasons)}", arch)


def answer_version(backend: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Give a child's function, since the libraries of compilers may crash."""
    module = import_module(f"foretune.kernels.runtime.{backend}")
    return lambda _: {"version": module.compiler_version()}


def write_facts(
    path: str | os.PathLike[str],
    problems: Sequence[Problem],
    arch: str,
    *,
    configs: int = 1,
    most: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    note: str = "",
    show: Callable[[str, int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Compile kernels for an AMD GPU and write what they take as Parquet, with a datasheet.

    Parameters
    ----------
    path : path-like
        Of the Parquet file; the datasheet has the same name with ".md".
    problems : sequence of Problem
    arch : str
        Such as "gfx942".
    configs : int, default 1
        Of each solver and problem, beside the default one.
    most : int, optional
        Kernels at most, by `fair_share`. Default: all.
    seed : int, default 0
    workers : int, optional
        Processes that compile. Default: as many as there are processors.
    note : str, optional
        What the datasheet calls the problems.
    show : callable, optional
        Takes a text, steps done and steps in all.

    Returns
    -------
    list of dict
        Rows, with the columns of `COLUMNS`.

    Raises
    ------
    InputError
        If the arch is unknown, or nothing here compiles for it.
    """
    for name, number, least in (("configs", configs, 0), ("kernels", most, 1)):
        if number is not None and number < least:
            raise InputError(f"expected at least {least}, got {number}", name)
    path = Path(path)
    device = amd_properties(arch)
    backend, compiler = compiler_for(arch)
    uses = used_kernels(problems, device, configs, seed)
    kernels = fair_share(uses, len(uses) if most is None else most, seed)
    rows = []
    processes = workers or len(os.sched_getaffinity(0))
    for kernel, compiled in compile_kernels(kernels, arch, backend, processes):
        rows.append(_row(arch, kernel, uses[kernel], compiled))
        if show is not None:
            show(f"kernels: {kernel.name}", len(rows), len(kernels))
    rows.sort(key=lambda row: (row["file"], row["name"], row["macros"]))
    table = pa.table({name: _column(name, rows) for name in COLUMNS})
    with replace_file(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")
    with replace_file(path.with_suffix(".md")) as temporary:
        about = f"{len(kernels)} of {len(uses)} kernels of {len(problems)} problems"
        lines = _datasheet(path, f"{about}{note and f' ({note})'}", arch, compiler, rows)
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return rows


def _row(arch: str, kernel: KernelSource, use: Use, compiled: Compiled) -> dict[str, Any]:
    facts = compiled.facts
    return {
        "arch": arch,
        "file": kernel.file,
        "name": kernel.name,
        "macros": ",".join(f"{name}={value}" for name, value in kernel.macros),
        "solvers": ",".join(use.solvers),
        "is_default": use.is_default,
        "threads": kernel.threads,
        **(asdict(facts) if facts else dict.fromkeys(field.name for field in fields(StaticFacts))),
        "waves_per_simd": waves_per_simd(facts, arch) if facts else None,
        "reason": compiled.reason,
    }


_WORDS = pa.dictionary(pa.int32(), pa.string())
_TYPES = {
    **dict.fromkeys(("arch", "file", "name", "macros", "solvers", "reason"), _WORDS),
    "is_default": pa.bool_(),
    "waves_per_simd": pa.float64(),
}


def _column(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Array:
    return pa.array([row[name] for row in rows], _TYPES.get(name, pa.int32()))


def _datasheet(
    path: Path, about: str, arch: str, compiler: str, rows: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Lines of the datasheet, in Markdown."""
    yield f"# {path.name}"
    yield ""
    yield (
        f"What foretune's kernels take of {arch}, read from code objects that {compiler} made "
        f"without a GPU: {about}. Made by `foretune facts`. The kernels are those of default "
        "configs and of configs drawn from each solver's space; where there are too many, every "
        "function has its turn, with default configs and others."
    )
    yield ""
    yield (
        "Occupancy follows from AMD's limits: the CDNA instruction set manuals, the note on "
        "register pressure in AMD CDNA2 GPUs at gpuopen.com, and LLVM's `AMDGPUBaseInfo.cpp`."
    )
    yield from ("", "## Kernels", "")
    headers = ("kernel", "compiled", "default", "failed", "VGPRs", "spilling", "LDS", "waves/SIMD")
    yield f"| {' | '.join(headers)} |"
    yield "|" + "---|" * len(headers)
    for file, name in sorted({(row["file"], row["name"]) for row in rows}):
        own = [row for row in rows if (row["file"], row["name"]) == (file, name)]
        good = [row for row in own if not row["reason"]]
        cells = (
            f"{file} {name}",
            len(good),
            sum(row["is_default"] for row in good),
            len(own) - len(good),
            _span(row["vector_registers"] for row in good),
            sum(row["scratch_bytes"] > 0 for row in good),
            _span(row["local_bytes"] for row in good),
            _span(row["waves_per_simd"] for row in good),
        )
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    yield "Spans are from the least to the most; spilling are those with scratch memory."
    yield from ("", "## Columns", "", "| column | meaning |", "|---|---|")
    for name, meaning in COLUMNS.items():
        yield f"| {name} | {meaning} |"


def _span(numbers: Iterable[float | None]) -> str:
    known = [number for number in numbers if number is not None]
    return f"{min(known):g} to {max(known):g}" if known else ""
