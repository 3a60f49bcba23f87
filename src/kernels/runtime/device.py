"""The device contract: what a backend does. One file beside this for each backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.errors import InputError
from foretune.kernels.runtime.properties import DeviceProperties

#: Names of backends, in the order in which a default device is looked for.
BACKENDS = ("hip", "cuda", "opencl")


class DeviceError(RuntimeError):
    """A device or its driver refused; the message names the call and the status."""


class OutOfDeviceMemoryError(DeviceError):
    """There is not enough memory on the device."""


class CompileError(DeviceError):
    """A kernel can't be built; the message is the compiler's log."""


class Buffer(ABC):
    """Memory on a device.

    Attributes
    ----------
    nbytes : int
        Its size.
    """

    nbytes: int

    @abstractmethod
    def part(self, offset: int, nbytes: int) -> Buffer:
        """View a part; ``offset`` is a multiple of WORKSPACE_ALIGNMENT (solver.py)."""

    @abstractmethod
    def free(self) -> None:
        """Give the memory back; harmless if done twice or on a part."""


#: What a kernel takes: memory, packed scalars, or the null pointer.
LaunchArgument = Buffer | bytes | None


@dataclass(frozen=True)
class KernelFacts:
    """What a built kernel takes of a device; None where its backend can't say.

    Parameters
    ----------
    registers : int or None
        Of one thread.
    spill_bytes : int or None
        Memory of one thread for what found no register, and for arrays.
    local_bytes : int or None
        LDS or shared memory of a block, static and dynamic.
    """

    registers: int | None = None
    spill_bytes: int | None = None
    local_bytes: int | None = None


class Kernel(ABC):
    """A loaded kernel function."""

    @property
    @abstractmethod
    def facts(self) -> KernelFacts:
        """What it takes of the device.

        Raises
        ------
        DeviceError
            If the driver refuses to say.
        """

    @abstractmethod
    def bind(
        self, grid: tuple[int, int, int], threads: int, arguments: Sequence[LaunchArgument]
    ) -> Callable[[], None]:
        """Lay out arguments once; the function starts it on the device's stream, without waiting.

        Many may be bound at a time.
        """

    def launch(
        self, grid: tuple[int, int, int], threads: int, arguments: Sequence[LaunchArgument]
    ) -> None:
        """Start it on the device's stream, without waiting."""
        self.bind(grid, threads, arguments)()


class Device(ABC):
    """A device of one backend, with one stream (queue) on which everything runs in order.

    Opening a device twice in a process is allowed; memory of one can't be given to another.
    """

    properties: DeviceProperties
    #: What its module's function ``compiler`` is called with, in whichever process.
    target: tuple[Any, ...]

    @abstractmethod
    def compile(self, source: str, macros: Sequence[tuple[str, int]]) -> bytes:
        """Build the device's own binary from a whole source, in this process.

        Compilers crash: executors do it in child processes (compiling.py).

        Raises
        ------
        CompileError
            With the compiler's log.
        """

    @abstractmethod
    def load(self, binary: bytes, name: str) -> Kernel:
        """Load a kernel function from a binary; no compiler is needed."""

    @abstractmethod
    def alloc(self, nbytes: int) -> Buffer:
        """Take memory, with undefined content.

        Raises
        ------
        OutOfDeviceMemoryError
            If there is not enough.
        """

    @abstractmethod
    def wrap(self, address: int, nbytes: int) -> Buffer:
        """See memory of the caller's as a buffer, without a copy if the device can reach it.

        That is the host's memory for OpenCL, the device's own for the others.
        """

    def publish(self, buffer: Buffer) -> None:  # noqa: B027
        """Make what was written to wrapped memory visible to its owner, and wait if need be."""

    def on_stream(self, handle: int) -> AbstractContextManager[None]:  # noqa: ARG002
        """Start everything on a stream of the caller for a while."""
        raise InputError(f"{self.properties.name} has no streams; leave it out", "stream")

    def stream_number(self) -> int | None:
        """Give the number of the stream as DLPack counts; None if there is none."""
        return None

    @abstractmethod
    def write(self, buffer: Buffer, data: npt.NDArray[Any]) -> None:
        """Copy a contiguous array to the start of a buffer, and wait."""

    @abstractmethod
    def read(self, buffer: Buffer, out: npt.NDArray[Any]) -> None:
        """Copy the start of a buffer into a contiguous array, and wait."""

    @abstractmethod
    def fill(self, buffer: Buffer, byte: int) -> None:
        """Set all bytes of a buffer to one value, on the stream, without waiting."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for everything that was started. Errors of earlier launches surface here."""

    @abstractmethod
    def time_ms(self, work: Callable[[], None]) -> float:
        """Milliseconds on the device's clock that the launches of ``work`` took; waits."""

    def upload(self, data: npt.NDArray[Any]) -> Buffer:
        """Take memory and copy an array into it."""
        buffer = self.alloc(data.nbytes)
        self.write(buffer, np.ascontiguousarray(data))
        return buffer


def open_device(name: str = "") -> Device:
    """Open a device by name.

    Parameters
    ----------
    name : str
        "cpu", "hip", "cuda", "opencl", with an index if there are several ("cuda:1"). "" takes the
        first GPU that is there, else "cpu".

    Raises
    ------
    InputError
        If it isn't there; the message says why and what to do.
    """
    from importlib import import_module

    if not isinstance(name, str):
        raise InputError(f"expected a name such as 'cpu', got {name!r}", "device")
    backend, _, index = name.partition(":")
    if not index.isdecimal() and index:
        raise InputError(f"expected a number after the colon, got {name!r}", "device")
    if backend == "cpu":
        backend = "opencl"
    if backend and backend not in BACKENDS:
        raise InputError(f"unknown device {name!r}; known are cpu, {', '.join(BACKENDS)}", "device")
    reasons = []
    for candidate in [backend] if backend else BACKENDS:
        module = import_module(f"foretune.kernels.runtime.{candidate}")
        reason = module.why_absent()
        if reason is None:
            device: Device = module.open_device(int(index or 0), processor=name.startswith("cpu"))
            return device
        reasons.append(f"{candidate}: {reason}")
    raise InputError("no device; " + "; ".join(reasons), "device")
