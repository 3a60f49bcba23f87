"""Devices of a Ray cluster for tuning. Needs the extra `cluster`.

The run, its journal and its cache of binaries stay in the process that calls `tune`. In the
cluster there are hosts: actors that keep child processes. One for each device measures, pinned to
its machine; one for each free processor compiles, wherever that is. Binaries travel from those that
compile through the caller's cache to the machines that measure, which compile nothing.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count, cycle, islice
from threading import Lock
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import foretune
from foretune.errors import InputError
from foretune.kernels.building import Builds
from foretune.kernels.fleet import Member
from foretune.kernels.runtime import compiling
from foretune.kernels.runtime.binaries import BinaryCache
from foretune.kernels.runtime.builder import Builder
from foretune.kernels.runtime.compiling import Compiler
from foretune.kernels.runtime.device import BACKENDS
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.runtime.worker import (
    START_TIMEOUT,
    Caller,
    Worker,
    WorkerDied,
    WorkerError,
    WorkerGone,
    WorkerRaised,
)
from foretune.kernels.solver import KernelSource

#: Hosts that may be lost with one kernel in hand before it is taken for the reason.
_MOST_LOSSES = 2
#: Times that a host is started again on a machine that is there.
_MOST_STARTS = 3
#: Seconds between two looks whether a host runs.
_PATIENCE = 0.2
#: Characters of Ray's reasons that are kept.
_REASON = 300


class _Child:
    """What runs in the cluster: keeps child processes, and the binaries of its machine."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self._cache = BinaryCache()

    def describe(self) -> dict[str, Any]:
        return {"host": socket.gethostname(), "pid": os.getpid(), "foretune": foretune.__version__}

    def call(
        self, job: tuple[Any, ...], payload: Mapping[str, Any], timeout: float
    ) -> tuple[str, Any]:
        worker = self._workers.get(repr(job))
        if worker is None:
            worker = self._workers[repr(job)] = Worker(*job)
        try:
            return "answer", worker.call(payload, timeout)
        except WorkerDied as error:
            return "died", error.reason
        except WorkerRaised as error:
            return "raised", error.reason

    def close(self, job: tuple[Any, ...]) -> None:
        if repr(job) in self._workers:
            self._workers.pop(repr(job)).close()

    def missing(self, keys: Sequence[str]) -> list[str]:
        return [key for key in keys if self._cache.get(key) is None]

    def keep(self, binaries: Mapping[str, bytes]) -> None:
        for key, binary in binaries.items():
            self._cache.put(key, binary)


@dataclass(frozen=True)
class _Place:
    """A share of a machine that a host takes."""

    node: str
    cpus: int
    gpus: int = 0


class _Host:
    """An actor on one machine, started again there after it was lost."""

    def __init__(self, place: _Place) -> None:
        self.place = place
        self.facts: dict[str, Any] = {}
        self._actor: Any = None
        self._described: Any = None
        self._starts = 0
        # Kernels of several devices may be compiled by one host.
        self._lock = Lock()

    def start(self) -> None:
        """Ask the cluster for the actor, without waiting."""
        self._starts += 1
        self._actor = (
            ray.remote(_Child)
            .options(
                num_cpus=self.place.cpus,
                num_gpus=self.place.gpus,
                scheduling_strategy=NodeAffinitySchedulingStrategy(self.place.node, soft=False),
            )
            .remote()
        )
        self._described = self._actor.describe.remote()

    def wait(self, timeout: float) -> bool:
        """Wait until it runs; false if it doesn't yet.

        Raises
        ------
        WorkerGone
            If it can't run here.
        """
        if not ray.wait([self._described], timeout=timeout)[0]:
            return False
        facts = self._get(self._actor, self._described, timeout=START_TIMEOUT)
        theirs, ours = facts["foretune"], foretune.__version__
        if theirs != ours:
            self.kill()
            raise WorkerGone(f"{facts['host']} has foretune {theirs}, this machine has {ours}")
        self.facts = facts
        return True

    def revive(self) -> bool | None:
        """Start it again if need be; false if it can't run here, None while it doesn't yet."""
        with self._lock:
            try:
                if self._actor is None:
                    if self._starts >= _MOST_STARTS or not self._is_machine_here():
                        return False
                    self.start()
                if not self.facts and not self.wait(0):
                    return None
            except WorkerGone:
                return None
            self._starts = 0
            return True

    def call(self, method: str, *arguments: Any, timeout: float) -> Any:
        """Have the actor do something.

        Raises
        ------
        WorkerGone
            If it or its machine is lost, or it doesn't answer.
        """
        actor = self._actor
        if actor is None:
            raise WorkerGone("it was lost before")
        return self._get(actor, getattr(actor, method).remote(*arguments), timeout)

    def tell(self, method: str, *arguments: Any) -> None:
        """Have the actor do something before what is asked next, without waiting."""
        actor = self._actor
        if actor is not None:
            getattr(actor, method).remote(*arguments)

    @property
    def is_up(self) -> bool:
        """Whether it runs, as far as is known."""
        return bool(self.facts)

    def kill(self) -> None:
        """End the actor; its child processes end with it."""
        self._kill(self._actor)

    def _kill(self, actor: Any) -> None:
        # Another thread may have started the next one.
        if actor is not None and actor is self._actor:
            self._actor, self.facts = None, {}
            ray.kill(actor)

    def _is_machine_here(self) -> bool:
        return any(node["NodeID"] == self.place.node for node in _machines())

    def _get(self, actor: Any, reference: Any, timeout: float) -> Any:
        try:
            return ray.get(reference, timeout=timeout)
        except GetTimeoutError:
            reason = f"didn't answer for {timeout:g} s"
        except RayError as error:
            reason = " ".join(str(error).split())[:_REASON]
        # Who may still be there must not go on with what somebody else is asked now.
        self._kill(actor)
        raise WorkerGone(reason)


class _RemoteWorker:
    """A child process that a host keeps, with the methods of `Worker`."""

    def __init__(self, host: _Host, *job: Any) -> None:
        self._host = host
        self._job = job

    def call(self, payload: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """As `Worker.call`, but that the host may be lost."""
        kind, answer = self._host.call(
            "call", self._job, payload, timeout, timeout=timeout + 2 * START_TIMEOUT
        )
        if kind == "died":
            raise WorkerDied(answer)
        if kind == "raised":
            raise WorkerRaised(answer)
        found: dict[str, Any] = answer
        return found

    def kill(self) -> None:
        """End the host, and with it a call that another thread waits for."""
        self._host.kill()

    def close(self) -> None:
        """End the child; the next call starts a new one."""
        self._host.tell("close", self._job)


class _Device:
    """A device of the cluster."""

    def __init__(self, host: _Host, number: int, *job: Any) -> None:
        self.host = host
        self.worker: Caller = _RemoteWorker(host, *job)
        self.name = f"{host.facts['host']}#{number}"
        self.builder: Builder | None = None
        self._sent: set[str] = set()
        try:
            described = self.worker.call({"do": "describe"}, START_TIMEOUT)
        except (WorkerError, WorkerGone) as error:
            raise InputError(
                f"the measuring process on {host.facts['host']} doesn't start: {error.reason}",
                "cluster",
            ) from None
        self.properties: DeviceProperties = described["properties"]
        if host.place.gpus and self.properties.arch == "cpu":
            raise InputError(
                f"{host.facts['host']} has a GPU that can't be used; 'foretune devices' there "
                "tells why",
                "cluster",
            )
        self.target: tuple[Any, ...] = described["target"]

    def supply(self, kernels: Iterable[KernelSource]) -> None:
        """Send the binaries that its machine doesn't have."""
        assert self.builder is not None
        keys = [key for key in map(self.builder.key, kernels) if key not in self._sent]
        if not keys:
            return
        missing = self.host.call("missing", keys, timeout=START_TIMEOUT)
        binaries = {key: self.builder.cache.get(key) for key in missing}
        there = {key: binary for key, binary in binaries.items() if binary is not None}
        if there:
            self.host.tell("keep", there)
        self._sent.update(keys)

    def clocks(self) -> dict[str, Any]:
        """Ask its machine; empty if that is lost."""
        try:
            return self.worker.call({"do": "clocks"}, START_TIMEOUT)
        except (WorkerError, WorkerGone):
            return {}

    def revive(self) -> bool | None:
        """Measure in a new process on the same machine, if that is there and the device is."""
        answer = self.host.revive()
        if answer:
            # What was on its way is lost.
            self._sent.clear()
            try:
                described = self.worker.call({"do": "describe"}, START_TIMEOUT)
            except (WorkerError, WorkerGone):
                return None
            return bool(described["properties"] == self.properties)
        return answer


class _Compilers:
    """Hosts whose compiler makes a kind of device's own binaries."""

    def __init__(
        self, properties: DeviceProperties, target: tuple[Any, ...], hosts: Sequence[_Host]
    ) -> None:
        self._properties = properties
        module = f"{compiling.__package__}.{properties.backend}"
        self._job = (f"{compiling.__name__}:answer_facts", module, target)
        # Hosts of one machine compile alike.
        machines = {host.place.node: host for host in hosts}
        with ThreadPoolExecutor(len(machines)) as threads:
            answers = threads.map(self._why_unsuited, machines.values())
        reasons = dict(zip(machines, answers, strict=True))
        self._hosts = [host for host in hosts if reasons[host.place.node] is None]
        if not self._hosts:
            raise InputError(
                f"no machine compiles for {properties.name} with {properties.compiler}: "
                + "; ".join(reason for reason in reasons.values() if reason),
                "cluster",
            )
        self._lock = Lock()

    def running(self, turn: int) -> tuple[int, _Host]:
        """Give the host whose turn it is, or the next one that runs, with its turn.

        Raises
        ------
        InputError
            If none can be had any more.
        """
        until = time.monotonic() + START_TIMEOUT
        while True:
            answers = []
            for other in range(turn, turn + len(self._hosts)):
                host = self._hosts[other % len(self._hosts)]
                answers.append(host.revive())
                if answers[-1]:
                    return other, host
            if not any(answer is None for answer in answers) or time.monotonic() > until:
                self._find_another()
            time.sleep(_PATIENCE)

    def close(self) -> None:
        """End the hosts."""
        for host in self._hosts:
            host.kill()

    def _find_another(self) -> None:
        """Have a machine compile that is there, even if its processors were not meant for that."""
        with self._lock:
            # Another thread may have waited for the same.
            if any(host.is_up for host in self._hosts):
                return
            for node in _machines():
                host = _Host(_Place(node["NodeID"], 0))
                host.start()
                with suppress(WorkerGone):
                    if host.wait(START_TIMEOUT) and self._why_unsuited(host) is None:
                        self._hosts.append(host)
                        return
                host.kill()
        raise InputError("all machines that compile are lost", "cluster")

    def _why_unsuited(self, host: _Host) -> str | None:
        try:
            facts = _RemoteWorker(host, *self._job).call({}, START_TIMEOUT)
        except WorkerError as error:
            facts = {"compiler": error.reason}
        host.tell("close", self._job)
        if all(getattr(self._properties, name) == value for name, value in facts.items()):
            return None
        return f"{host.facts['host']} has {', '.join(facts.values())}"


class _CompileWorker:
    """A child process that compiles on one host, or on another when that is lost."""

    def __init__(self, hosts: _Compilers, turn: int, *job: Any) -> None:
        self._hosts = hosts
        self._turn = turn
        self._job = job

    def call(self, payload: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """As `Worker.call`; a host that is lost is replaced."""
        losses = 0
        while True:
            self._turn, host = self._hosts.running(self._turn)
            try:
                return _RemoteWorker(host, *self._job).call(payload, timeout)
            except WorkerGone as error:
                losses += 1
                if losses >= _MOST_LOSSES:
                    raise WorkerDied(f"{losses} hosts were lost with it: {error.reason}") from None

    def kill(self) -> None:
        """Do nothing: what is being compiled is soon done."""

    def close(self) -> None:
        """Do nothing: the hosts end with the fleet."""


class ClusterFleet:
    """Devices of a Ray cluster.

    Parameters
    ----------
    address : str
        Of a running cluster ("auto", "10.0.0.1:6379"), or "local" for one that is started on this
        machine and ends with the fleet.
    device : str, optional
        "cuda", "hip", or "cpu" for processors. Default: the GPUs of the cluster if it has any,
        else its processors.
    devices : int, optional
        How many of them. Default: all GPUs, or the processor of each machine.
    workers : int, optional
        Processes that compile at a time. Default: one for each free processor of the cluster.

    Raises
    ------
    InputError
        If there is no such cluster, or too few devices in it.
    """

    def __init__(
        self,
        address: str,
        device: str = "",
        devices: int | None = None,
        workers: int | None = None,
    ) -> None:
        if device not in ("", "cpu", *BACKENDS):
            raise InputError(
                f"expected cpu, {' or '.join(BACKENDS)} without a number, got {device!r}: "
                "the cluster chooses which",
                "device",
            )
        for name, number in (("devices", devices), ("workers", workers)):
            if number is not None and number < 1:
                raise InputError(f"expected at least 1, got {number}", name)
        self._is_own = not ray.is_initialized()
        if self._is_own:
            _connect(address)
        self._hosts: list[_Host] = []
        self._compilers: list[_Host] = []
        self._kinds: list[_Compilers] = []
        self._members: list[_Device] = []
        try:
            nodes = _machines()
            self._device = device or ("" if _gpus(nodes) else "cpu")
            self._places = _places(nodes, self._device == "cpu", devices)
            self._free = _free_processors(nodes, self._places)[:workers]
        except BaseException:
            self.close()
            raise

    def open(self, server: str, options: Mapping[str, Any]) -> Sequence[Member]:
        """Start all hosts, and the measuring processes."""
        self._hosts = [_Host(place) for place in (*self._places, *self._free)]
        for host in self._hosts:
            host.start()
        _wait_for(self._hosts)
        measuring = self._hosts[: len(self._places)]
        self._compilers = self._hosts[len(self._places) :]
        job = (server, self._device, dict(options))
        with ThreadPoolExecutor(len(measuring)) as threads:
            self._members = list(
                threads.map(lambda host, number: _Device(host, number, *job), measuring, count())
            )
        return self._members

    def builder(self, properties: DeviceProperties) -> Builds:
        """Give who builds for members of these properties."""
        members = [member for member in self._members if member.properties == properties]
        target = members[0].target
        hosts = _Compilers(properties, target, self._compilers)
        self._kinds.append(hosts)
        turns = count()

        def start(*job: Any, environment: Mapping[str, str] | None) -> _CompileWorker:
            assert environment is None
            return _CompileWorker(hosts, next(turns), *job)

        made = Builder(properties, Compiler(properties.backend, target, start=start))
        for member in members:
            member.builder = made
        return made

    def workers(self) -> int:
        """Kernels that can be compiled at a time."""
        return len(self._free)

    def close(self) -> None:
        """End all hosts, and the cluster if it was started here."""
        for host in self._hosts:
            host.kill()
        for kind in self._kinds:
            kind.close()
        if self._is_own:
            ray.shutdown()


def _connect(address: str) -> None:
    # Whoever tunes didn't ask for reports to Ray's makers.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(
            address=address,
            include_dashboard=False if address == "local" else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, ValueError, RuntimeError, RayError) as error:
        reason = " ".join(str(error).split())[:_REASON]
        raise InputError(
            f"no Ray cluster at {address!r}: {reason}; start one with 'ray start --head'", "cluster"
        ) from None


def _machines() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _gpus(nodes: Iterable[Mapping[str, Any]]) -> int:
    return sum(int(node["Resources"].get("GPU", 0)) for node in nodes)


def _places(
    nodes: Sequence[Mapping[str, Any]], is_processor: bool, devices: int | None
) -> list[_Place]:
    """Choose machines for the measuring hosts."""
    if is_processor:
        chosen = list(islice(cycle(nodes), devices or len(nodes)))
    else:
        chosen = [node for node in nodes for _ in range(_gpus([node]))]
        if not chosen or len(chosen) < (devices or 0):
            raise InputError(
                f"the cluster has {len(chosen)} GPUs, asked for {devices or 'at least 1'}",
                "devices",
            )
        chosen = chosen[:devices]
    return [_Place(node["NodeID"], 0, 0 if is_processor else 1) for node in chosen]


def _free_processors(nodes: Sequence[Mapping[str, Any]], places: Sequence[_Place]) -> list[_Place]:
    """Processors that measuring leaves, taken from all machines in turn; one at least."""
    busy = Counter(place.node for place in places)
    free = {
        node["NodeID"]: int(node["Resources"].get("CPU", 0)) - busy[node["NodeID"]]
        for node in nodes
    }
    turns = (
        [_Place(node, 1) for node, number in free.items() if number > turn]
        for turn in range(max(free.values()))
    )
    return list(chain.from_iterable(turns)) or [_Place(places[0].node, 0)]


def _wait_for(hosts: Sequence[_Host]) -> None:
    until = time.monotonic() + START_TIMEOUT
    for host in hosts:
        try:
            is_running = host.wait(max(0.0, until - time.monotonic()))
        except WorkerGone as error:
            raise InputError(f"a machine can't be used: {error.reason}", "cluster") from None
        if not is_running:
            raise InputError(
                f"a machine has no room after {START_TIMEOUT:g} s ({host.place.cpus} processors "
                f"and {host.place.gpus} GPUs were asked for): is something else running there?",
                "cluster",
            )
