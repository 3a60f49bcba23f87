"""Child processes for what may crash or hang: compilers, and kernels that were never validated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from types import TracebackType
from typing import Any, Protocol

_CHILD = "foretune.kernels.runtime.worker_child"
#: Seconds that a child has to start and to call its factory.
START_TIMEOUT = 120.0
#: Characters of a dead child's last words that reasons quote.
_LAST_WORDS = 300


class WorkerError(RuntimeError):
    """A call was not answered.

    Attributes
    ----------
    reason : str
        Why, in one line.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class WorkerDied(WorkerError):  # noqa: N818
    """The child crashed, or took too long and was ended. The next call starts a new one."""


class WorkerRaised(WorkerError):  # noqa: N818
    """The child's function raised an exception; the child lives on."""


class WorkerGone(RuntimeError):  # noqa: N818
    """The machine or process that kept the child can't be reached; the child isn't to blame.

    Attributes
    ----------
    reason : str
        Why, in one line.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Caller(Protocol):
    """Who has calls answered in a child process, here or elsewhere."""

    def call(self, payload: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Ask and wait, as `Worker.call`; elsewhere, it may raise `WorkerGone`."""
        ...

    def kill(self) -> None:
        """Have a call that another thread waits for end at once."""
        ...

    def close(self) -> None:
        """End the child; the next call starts a new one."""
        ...


class Worker:
    """A child process that answers one call after another.

    It is started at the first call, and again at the first call after it died. It ends with this
    process, however that ends. One thread may use it at a time.

    Parameters
    ----------
    factory : str
        "module:function". The child calls it once; it gives the function that takes a dict and
        gives a dict.
    *arguments
        What the factory is called with. These, payloads and answers travel pickled.
    environment : mapping, optional
        Variables to set for the child.

    Examples
    --------
    >>> with Worker("operator:methodcaller", "copy") as worker:
    ...     worker.call({"number": 1}, timeout=60)
    {'number': 1}
    """

    def __init__(
        self, factory: str, *arguments: Any, environment: Mapping[str, str] | None = None
    ) -> None:
        self._job = (factory, arguments)
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._words: Any = None

    def call(self, payload: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Ask and wait for the answer.

        Parameters
        ----------
        payload : mapping
        timeout : float
            Seconds after which the child is ended. Starting one isn't counted.

        Raises
        ------
        WorkerDied
            If the child crashed or took too long.
        WorkerRaised
            If its function, or the factory before it, raised.
        """
        if self._process is None:
            self._start()
            self._exchange(self._job, START_TIMEOUT)
        answer: dict[str, Any] = self._exchange(payload, timeout)
        return answer

    def kill(self) -> None:
        """Have a call that another thread waits for end at once, as if the child had crashed."""
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the child."""
        if self._process is not None:
            self._process = None
            self._end()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self) -> None:
        ours, theirs = Pipe()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _CHILD, str(theirs.fileno())],
                env=environment | self._environment,
                stdin=subprocess.DEVNULL,
                stdout=self._words,
                stderr=self._words,
                pass_fds=[theirs.fileno()],
                # Ctrl-C is this process's to handle; and helpers of the child end with it.
                process_group=0,
            )
        self._connection = ours
        # Also when this worker is forgotten, and at the end of the program.
        self._end = weakref.finalize(self, _end, self._process, ours, self._words)

    def _exchange(self, message: Any, timeout: float) -> Any:
        assert self._connection is not None
        try:
            self._connection.send(message)
            if not self._connection.poll(timeout):
                self.close()
                raise WorkerDied(f"took more than {timeout:g} s and was ended")
            answer, raised = self._connection.recv()
        except (EOFError, ConnectionError):
            raise WorkerDied(self._bury()) from None
        except KeyboardInterrupt:
            # The answer to this would be taken for the next one's.
            self.close()
            raise
        if raised is None:
            return answer
        if message is self._job:
            self.close()
        raise WorkerRaised(raised)

    def _bury(self) -> str:
        process = self._process
        assert process is not None
        status = process.wait()
        self._words.seek(max(0, self._words.seek(0, os.SEEK_END) - _LAST_WORDS))
        words = self._words.read().decode(errors="replace").strip()
        self.close()
        if status >= 0:
            reason = f"the process ended with exit code {status}"
        elif -status == signal.SIGKILL:
            reason = "the process was killed, perhaps for want of memory"
        else:
            reason = f"the process crashed ({signal.Signals(-status).name})"
        last = words.splitlines()[-1] if words else ""
        return f"{reason}: {last}" if last else reason


def _end(process: subprocess.Popen[bytes], connection: Connection[Any, Any], words: Any) -> None:
    connection.close()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    process.wait()
    words.close()
