"""The process that tuning measures in: it may crash, hang or be given back at any time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from foretune.kernels.bench import Bench
from foretune.kernels.clocks import clock_facts
from foretune.kernels.measure import Measurement, MeasureOptions
from foretune.kernels.problem_text import parse_problem
from foretune.kernels.registry import solver
from foretune.kernels.runtime.binaries import BinaryCache
from foretune.kernels.runtime.device import OutOfDeviceMemoryError, open_device
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.solver import Candidate


def serve(
    device: str, options: Mapping[str, Any] | None = None
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Give the function that answers requests, as `foretune.kernels.runtime.worker` wants it.

    Parameters
    ----------
    device : str
    options : mapping, optional
        Of `MeasureOptions`.
    """
    return _Server(device, MeasureOptions(**(options or {}))).answer


class _Server:
    """Holds the one problem that is measured."""

    def __init__(self, device: str, options: MeasureOptions) -> None:
        self._device = open_device(device)
        self._cache = BinaryCache()
        self._options = options
        self._bench: Bench | None = None
        self._requests: dict[str, Callable[..., dict[str, Any]]] = {
            "describe": self._describe,
            "clocks": self._clocks,
            "open": self._open,
            "attempt": self._attempt,
            "race": self._race,
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks."""
        arguments = dict(request)
        return self._requests[arguments.pop("do")](**arguments)

    def _describe(self) -> dict[str, Any]:
        return {"properties": self._device.properties, "target": self._device.target}

    def _clocks(self) -> dict[str, Any]:
        return clock_facts(self._device.properties)

    def _open(self, problem: str) -> dict[str, Any]:
        """Set a problem up, in the place of the one before."""
        if self._bench is not None:
            self._bench.close()
            self._bench.executor.close()
            self._bench = None
        # An executor of its own, so that the kernels of the one before are let go.
        executor = Executor(self._device, self._cache)
        try:
            self._bench = Bench(executor, parse_problem(problem), check=True, options=self._options)
        except OutOfDeviceMemoryError as error:
            return {"why_not": f"the tensors don't fit: {error}"}
        return {}

    def _attempt(self, solver_id: str, config: str) -> dict[str, Any]:
        """Check and time a candidate."""
        bench = self._bench
        assert bench is not None
        chosen = solver(bench.problem.operation, solver_id)
        space = chosen.space(bench.problem, self._device.properties)
        candidate = Candidate(chosen, space.parse(config))
        outcome = bench.attempt(candidate)
        measured = bench.results.get(candidate.key) if outcome.status == "measured" else None
        return {
            **asdict(outcome),
            "facts": asdict(bench.facts(candidate)),
            "key": candidate.key,
            "times": measured and _summary(measured),
        }

    def _race(self, seconds: float, within: float, most: int) -> dict[str, Any]:
        """Let the fastest candidates race; gives the times of all."""
        bench = self._bench
        assert bench is not None
        bench.race.run(time.monotonic() + seconds, within, most)
        return {key: _summary(measured) for key, measured in bench.results.items()}


def _summary(measured: Measurement) -> dict[str, Any]:
    low, high = measured.quartiles
    return {
        "time_ms": measured.time_ms,
        "low_ms": low,
        "high_ms": high,
        "samples": len(measured.samples),
        "repeats": measured.repeats,
        "is_tied": measured.is_tied,
        "reason": measured.left_early,
    }
