"""Building kernels ahead for several devices, a few at a time for each in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from foretune.kernels.solver import KernelSource


class Builds(Protocol):
    """Who builds kernels, such as `foretune.kernels.runtime.executor.Executor`."""

    built: int

    def build_many(self, wanted: Iterable[KernelSource], workers: int) -> dict[KernelSource, str]:
        """See to it that there are binaries; give those that can't be built with the reason."""
        ...

    def close(self) -> None:
        """End its processes."""
        ...


class BuildQueue:
    """Builds kernels in the background.

    Parameters
    ----------
    builder : Builds
    workers : int
        That compile at a time.
    is_over : callable
        Whether what is still to build needn't be built any more.

    Attributes
    ----------
    seconds : float
        In which kernels were being built.
    """

    def __init__(self, builder: Builds, workers: int, is_over: Callable[[], bool]) -> None:
        self.builder = builder
        self.seconds = 0.0
        self._workers = workers
        self._is_over = is_over
        self._thread = ThreadPoolExecutor(1)

    def submit(self, kernels: Iterable[KernelSource]) -> Future[dict[KernelSource, str]]:
        """Have kernels built; the answer holds those that can't be, with the reason."""
        answer: Future[dict[KernelSource, str]] = Future()
        self._thread.submit(self._build, list(dict.fromkeys(kernels)), {}, answer)
        return answer

    def close(self) -> None:
        """End all; nobody may wait for an answer any more."""
        self._thread.shutdown(cancel_futures=True)
        self.builder.close()

    def _build(
        self,
        kernels: list[KernelSource],
        failures: dict[KernelSource, str],
        answer: Future[dict[KernelSource, str]],
    ) -> None:
        # In parts, so that the end of the run need not wait for all, nor devices for each other.
        part, rest = kernels[: 2 * self._workers], kernels[2 * self._workers :]
        if not part or self._is_over():
            answer.set_result(failures)
            return
        began = time.monotonic()
        try:
            failures |= self.builder.build_many(part, self._workers)
        except BaseException as error:
            answer.set_exception(error)
            return
        self.seconds += time.monotonic() - began
        self._thread.submit(self._build, rest, failures, answer)
