"""Compiling for AMD GPUs through a plain clang: no ROCm and no GPU are needed.

It knows archs that a ROCm of the distribution doesn't; see `foretune.kernels.runtime.amd_code`
for what can be read from the results.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from foretune.kernels.runtime.device import CompileError

#: Releases that know gfx942, the newest first, by Debian's names and ROCm's.
_NAMES = (*(f"clang-{release}" for release in range(24, 18, -1)), "amdclang")
_OPTIONS = ("-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpulib", "-nogpuinc")


@lru_cache(maxsize=1)
def why_absent() -> str | None:
    """Say in one line why no clang can be used, and how to get one; None if one can."""
    if _path() is None:
        return "no clang of release 19 or newer; apt-get install clang-19 lld-19"
    return None


def compiler(arch: str) -> Callable[[str, Sequence[tuple[str, int]]], bytes]:
    """Give a function that compiles a source with macros for an arch into a code object."""
    path = _path()
    if path is None:
        raise CompileError(str(why_absent()))
    options = [path, *_OPTIONS, f"--offload-arch={arch}", "-O3"]

    def build(source: str, macros: Sequence[tuple[str, int]]) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            text, code = Path(folder, "kernel.hip"), Path(folder, "kernel.o")
            text.write_text(source, encoding="utf-8")
            definitions = [f"-D{name}={value}" for name, value in macros]
            run = subprocess.run(
                [*options, *definitions, "-c", text, "-o", code],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            if run.returncode != 0:
                raise CompileError(run.stderr.strip() or f"clang: exit code {run.returncode}")
            return code.read_bytes()

    return build


def compiler_version() -> str:
    """Name and version of what compiles."""
    run = subprocess.run([str(_path()), "--version"], capture_output=True, text=True, check=True)
    return run.stdout.splitlines()[0].strip()


@lru_cache(maxsize=1)
def _path() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)
