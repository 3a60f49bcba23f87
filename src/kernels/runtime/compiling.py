"""Compiling in child processes: a compiler that crashes or hangs costs its kernel only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from foretune.kernels.runtime.device import CompileError

if TYPE_CHECKING:
    from foretune.kernels.runtime.worker import Caller

#: Seconds that one kernel may take. The slowest seen took 15 on a busy machine.
COMPILE_TIMEOUT = 180.0

Macros = Sequence[tuple[str, int]]


class Compiler:
    """Compiles for one kind of device in child processes, which start when they are needed.

    Parameters
    ----------
    backend : str
        Module beside this; its function ``compiler`` is called in the children.
    target : tuple
        What it is called with, such as ``("sm_90",)``.
    timeout : float
        Seconds that one kernel may take.
    package : str
        Where the module is.
    environment : mapping, optional
        Variables to set for the children.
    start : callable, optional
        Makes who answers calls in a child. Default: `Worker`, on this machine.

    Examples
    --------
    >>> from foretune.kernels.runtime.device import open_device
    >>> device = open_device("cpu")
    >>> with Compiler("opencl", device.target) as compiler:
    ...     compiler.compile("kernel void wrong() { here }", ())
    Traceback (most recent call last):
        ...
    foretune.kernels.runtime.device.CompileError: ...
    """

    def __init__(
        self,
        backend: str,
        target: tuple[Any, ...],
        timeout: float = COMPILE_TIMEOUT,
        package: str = __package__,
        environment: Mapping[str, str] | None = None,
        start: Callable[..., Caller] | None = None,
    ) -> None:
        module = f"{package}.{backend}".lstrip(".")
        self._worker_arguments = (f"{__name__}:answer_builds", module, target)
        self._environment = environment
        self._start = start
        self._timeout = timeout
        self._workers: list[Caller] = []
        self._idle: list[Caller] = []

    def compile(self, source: str, macros: Macros) -> bytes:
        """Build one binary; several threads may, each has a child of its own.

        Raises
        ------
        CompileError
            With the compiler's log, or how it crashed.
        """
        from foretune.kernels.runtime.worker import WorkerError

        worker = self._borrow()
        try:
            answer = worker.call({"source": source, "macros": tuple(macros)}, self._timeout)
        except WorkerError as error:
            raise CompileError(f"the compiler failed: {error.reason}") from None
        finally:
            self._idle.append(worker)
        if "log" in answer:
            raise CompileError(answer["log"])
        binary: bytes = answer["binary"]
        return binary

    def compile_many(
        self, jobs: Iterable[tuple[str, Macros]], workers: int
    ) -> Iterator[tuple[int, bytes | CompileError]]:
        """Build many at a time; give the number of each job with its binary or what went wrong.

        Parameters
        ----------
        jobs : iterable of (source, macros)
        workers : int
            Child processes.
        """
        from concurrent.futures import ThreadPoolExecutor, as_completed

        def build(source: str, macros: Macros) -> bytes | CompileError:
            try:
                return self.compile(source, macros)
            except CompileError as error:
                return error

        threads = ThreadPoolExecutor(workers)
        try:
            futures = {
                threads.submit(build, source, macros): index
                for index, (source, macros) in enumerate(jobs)
            }
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            threads.shutdown(cancel_futures=True)

    def close(self) -> None:
        """End the children. They start again if they are needed again."""
        for worker in self._workers:
            worker.close()

    def __enter__(self) -> Compiler:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _borrow(self) -> Caller:
        """Take a child that nobody uses."""
        # Programs whose kernels are built never need it.
        from foretune.kernels.runtime.worker import Worker

        try:
            return self._idle.pop()
        except IndexError:
            start = self._start or Worker
            made: Caller = start(*self._worker_arguments, environment=self._environment)
            self._workers.append(made)
            return made


def answer_builds(
    module_name: str, target: tuple[Any, ...]
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Give the child's function: a binary for a source, or the log of what is wrong with it."""
    module = import_module(module_name)
    # Made at the first request, so that what it says of the target is an answer too.
    build: list[Callable[[str, Macros], bytes]] = []

    def answer(request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            if not build:
                build.append(module.compiler(*target))
            return {"binary": build[0](request["source"], request["macros"])}
        except CompileError as error:
            return {"log": str(error)}

    return answer


def answer_facts(
    module_name: str, target: tuple[Any, ...]
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Give a child's function: what has to equal a device's properties for binaries to be its."""
    facts: dict[str, Any] = import_module(module_name).compiler_facts(*target)
    return lambda _: facts
