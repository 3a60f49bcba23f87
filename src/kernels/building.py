"""Building kernels ahead for several devices, fairly, each kernel once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from itertools import count
from queue import PriorityQueue
from threading import Lock, Thread
from typing import Protocol

from foretune.kernels.runtime.device import CompileError
from foretune.kernels.solver import KernelSource


class Builds(Protocol):
    """Who builds kernels, such as `foretune.kernels.runtime.builder.Builder`."""

    built: int

    def is_built(self, wanted: KernelSource) -> bool:
        """Whether there is a binary."""
        ...

    def build(self, wanted: KernelSource) -> bytes:
        """Compile a kernel and keep its binary; several threads may."""
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
        Kernels that are built at a time.
    is_over : callable
        Whether what is still to build needn't be built any more.
    """

    def __init__(self, builder: Builds, workers: int, is_over: Callable[[], bool]) -> None:
        self.builder = builder
        self._is_over = is_over
        self._queue: PriorityQueue[tuple[float, int, KernelSource | None]] = PriorityQueue()
        self._numbers = count()
        self._asked: Counter[Hashable] = Counter()
        self._reasons: dict[KernelSource, Future[str | None]] = {}
        self._lock = Lock()
        self._busy, self._since, self._seconds = 0, 0.0, 0.0
        self._threads = [Thread(target=self._work, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    @property
    def seconds(self) -> float:
        """In which kernels were being built."""
        with self._lock:
            return self._seconds + (time.monotonic() - self._since if self._busy else 0.0)

    def submit(
        self, kernels: Iterable[KernelSource], device: Hashable = None
    ) -> Callable[[], dict[KernelSource, str]]:
        """Have kernels built, in this order, in turn with those of other devices.

        Returns
        -------
        callable
            Waits for them, and gives those that can't be built, with the reason.
        """
        reasons = {kernel: self._reason(kernel, device) for kernel in kernels}

        def wait() -> dict[KernelSource, str]:
            told = {kernel: reason.result() for kernel, reason in reasons.items()}
            return {kernel: reason for kernel, reason in told.items() if reason is not None}

        return wait

    def close(self) -> None:
        """End all, after what is being built."""
        for _ in self._threads:
            self._queue.put((-1.0, next(self._numbers), None))
        for thread in self._threads:
            thread.join()
        self.builder.close()

    def _reason(self, kernel: KernelSource, device: Hashable) -> Future[str | None]:
        with self._lock:
            known = self._reasons.get(kernel)
            if known is None:
                known = self._reasons[kernel] = Future()
                self._asked[device] += 1
                self._queue.put((self._asked[device], next(self._numbers), kernel))
            return known

    def _work(self) -> None:
        while True:
            _, _, kernel = self._queue.get()
            if kernel is None:
                return
            reason = self._reasons[kernel]
            try:
                reason.set_result(None if self._is_over() else self._build(kernel))
            except BaseException as error:
                reason.set_exception(error)

    def _build(self, kernel: KernelSource) -> str | None:
        if self.builder.is_built(kernel):
            return None
        self._count(1)
        try:
            self.builder.build(kernel)
        except CompileError as error:
            return str(error)
        finally:
            self._count(-1)
        return None

    def _count(self, change: int) -> None:
        with self._lock:
            now = time.monotonic()
            if self._busy:
                self._seconds += now - self._since
            self._since = now
            self._busy += change
