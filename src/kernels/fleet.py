"""The devices that a tuning run measures on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from foretune.errors import InputError
from foretune.kernels.building import Builds
from foretune.kernels.clocks import clock_facts
from foretune.kernels.runtime.device import Device, open_device
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.runtime.worker import START_TIMEOUT, Caller, Worker, WorkerError
from foretune.kernels.solver import KernelSource


class Member(Protocol):
    """A device with its measuring process.

    Attributes
    ----------
    name : str
        For people.
    properties : DeviceProperties
    worker : Caller
    """

    name: str
    properties: DeviceProperties
    worker: Caller

    def supply(self, kernels: Iterable[KernelSource]) -> None:
        """See to it that the measuring process finds binaries that were built."""
        ...

    def clocks(self) -> dict[str, Any]:
        """Tell how fast its clocks run at the moment."""
        ...

    def revive(self) -> bool | None:
        """Get a new measuring process after one was lost; None: not yet, ask again."""
        ...


class Fleet(Protocol):
    """All devices of a run."""

    def open(self, server: str, options: Mapping[str, Any]) -> Sequence[Member]:
        """Start the measuring processes."""
        ...

    def builder(self, properties: DeviceProperties) -> Builds:
        """Give who builds for members of these properties."""
        ...

    def workers(self) -> int:
        """Kernels that can be compiled at a time."""
        ...

    def close(self) -> None:
        """End all processes."""
        ...


class LocalFleet:
    """Devices of this machine, each with a child process.

    Parameters
    ----------
    names : str
        As `open_device` takes them, joined by commas.
    workers : int, optional
        Processes that compile at a time. Default: as many as there are processors.

    Raises
    ------
    InputError
        If one isn't there.
    """

    def __init__(self, names: str, workers: int | None = None) -> None:
        self._names = [name.strip() for name in names.split(",")]
        if len(self._names) > 1:
            _refuse_twice(self._names)
        self._devices = [open_device(name) for name in self._names]
        self._workers = workers or len(os.sched_getaffinity(0))
        self._members: list[_LocalMember] = []

    def open(self, server: str, options: Mapping[str, Any]) -> Sequence[Member]:
        """Start the measuring processes."""
        self._members = [
            _LocalMember(name or device.properties.arch, device, Worker(server, name, options))
            for name, device in zip(self._names, self._devices, strict=True)
        ]
        with ThreadPoolExecutor(len(self._members)) as threads:
            list(threads.map(_LocalMember.start, self._members))
        return self._members

    def builder(self, properties: DeviceProperties) -> Builds:
        """Give who builds for members of these properties."""
        return Executor(next(device for device in self._devices if device.properties == properties))

    def workers(self) -> int:
        """Kernels that can be compiled at a time."""
        return self._workers

    def close(self) -> None:
        """End all processes."""
        for member in self._members:
            member.worker.close()


class _LocalMember:
    def __init__(self, name: str, device: Device, worker: Worker) -> None:
        self.name = name
        self.properties = device.properties
        self.worker: Caller = worker

    def start(self) -> None:
        try:
            self.worker.call({"do": "describe"}, START_TIMEOUT)
        except WorkerError as error:
            raise RuntimeError(f"the measuring process doesn't start: {error.reason}") from None

    def supply(self, kernels: Iterable[KernelSource]) -> None:
        """Do nothing: all processes of a machine share the binaries on its disk."""

    def clocks(self) -> dict[str, Any]:
        """Ask the driver."""
        return clock_facts(self.properties)

    def revive(self) -> bool | None:
        """Say that it is here: children start again by themselves."""
        return True


def _refuse_twice(names: Sequence[str]) -> None:
    seen = set()
    for name in names:
        backend, _, index = name.partition(":")
        if not backend:
            raise InputError(f"expected names joined by commas, got {','.join(names)!r}", "device")
        place = (backend, int(index) if index.isdecimal() else 0)
        # Processors are shared by whatever runs on them anyhow.
        if place in seen and backend != "cpu":
            raise InputError(f"{name} is listed twice; one would spoil the other's times", "device")
        seen.add(place)
