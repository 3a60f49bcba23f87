"""Measuring processes, with the operation "faulty", whose hosts are lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from foretune.kernels.runtime.builder import Builder
from foretune.kernels.runtime.device import CompileError
from foretune.kernels.solver import KernelSource
from tests.kernels import faulty_server

Answer = Callable[[dict[str, Any]], dict[str, Any]]
#: Takes a host with it.
FATAL = "THREADS=256"


def hosts(cache: Path) -> list[int]:
    """Ids of the processes that keep measuring processes, in the order in which they began."""
    files = sorted((cache / "hosts").glob("*"), key=lambda file: file.stat().st_mtime)
    return [int(file.name) for file in files]


def serve(device: str, options: Mapping[str, Any] | None = None) -> Answer:
    """Measure, but never compile, and leave the host's id for `hosts`."""
    folder = Path(os.environ["FORETUNE_CACHE"], "hosts")
    folder.mkdir(exist_ok=True)
    (folder / str(os.getppid())).touch()
    Builder.build = _refuse  # type: ignore[assignment, method-assign]
    return faulty_server.serve(device, options)


def serve_fatal(device: str, options: Mapping[str, Any] | None = None) -> Answer:
    """End the host at one of the candidates."""
    answer = faulty_server.serve(device, options)

    def answer_or_kill(request: dict[str, Any]) -> dict[str, Any]:
        if request.get("config") == FATAL:
            os.kill(os.getppid(), signal.SIGKILL)
        return answer(request)

    return answer_or_kill


def _refuse(_: Builder, wanted: KernelSource) -> bytes:
    raise CompileError(f"{wanted.name} was to be compiled where it is measured")
