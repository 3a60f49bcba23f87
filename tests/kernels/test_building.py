"""Kernels are built ahead: each once, in turn for all devices, until the run is over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock

from foretune.kernels.building import BuildQueue
from foretune.kernels.runtime.device import CompileError
from foretune.kernels.solver import KernelSource


class Noting:
    """Builds nothing, but notes what it was asked for, once the gate is open."""

    def __init__(self) -> None:
        self.built = 0
        self.order: list[str] = []
        self.gate = Event()
        self._lock = Lock()

    def is_built(self, wanted: KernelSource) -> bool:
        return wanted.name == "there"

    def build(self, wanted: KernelSource) -> bytes:
        self.gate.wait()
        with self._lock:
            self.built += 1
            self.order.append(wanted.name)
        if wanted.name == "wrong":
            raise CompileError("line 1: wrong")
        return b""

    def close(self) -> None:
        pass


def kernels(*names: str) -> list[KernelSource]:
    return [KernelSource("a.cl", name, ()) for name in names]


@contextmanager
def queue(builder: Noting, workers: int, over: Event | None = None) -> Iterator[BuildQueue]:
    made = BuildQueue(builder, workers, (over or Event()).is_set)
    try:
        yield made
    finally:
        builder.gate.set()
        made.close()


def test_devices_take_turns() -> None:
    builder = Noting()
    with queue(builder, workers=1) as builds:
        # The first is taken before the others are asked for.
        first = builds.submit(kernels("first"), "one")
        waits = [
            builds.submit(kernels("a1", "a2", "a3"), "one"),
            builds.submit(kernels("b1", "b2", "b3"), "two"),
        ]
        builder.gate.set()
        assert first() == {}
        assert [wait() for wait in waits] == [{}, {}]
    assert builder.order == ["first", "b1", "a1", "b2", "a2", "b3", "a3"]
    assert builds.seconds > 0


def test_a_kernel_is_built_once_and_a_failure_is_told_to_all() -> None:
    builder = Noting()
    with queue(builder, workers=3) as builds:
        waits = [builds.submit(kernels("same", "wrong", "there"), device) for device in "abc"]
        builder.gate.set()
        (wrong,) = kernels("wrong")
        assert [wait() for wait in waits] == [{wrong: "line 1: wrong"}] * 3
    assert sorted(builder.order) == ["same", "wrong"]


def test_when_the_run_is_over_nothing_is_begun() -> None:
    builder, over = Noting(), Event()
    with queue(builder, 1, over) as builds:
        wait = builds.submit(kernels("first", "second", "third"))
        over.set()
        builder.gate.set()
        assert wait() == {}
    assert builder.built <= 1
