"""Tuned answers that come with foretune: the fastest candidates of problems that it was tuned on.

One JSON file for an operation on an arch, light to read. It also says in which order solvers are
worth their defaults, for problems of which nothing else is known.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log
from pathlib import Path
from typing import Any, NamedTuple

from foretune.errors import InputError
from foretune.files import replace_file
from foretune.kernels.problem import Problem
from foretune.kernels.problem_text import format_problem
from foretune.kernels.registry import solvers
from foretune.kernels.runtime.properties import DeviceProperties

FILE_NAME = "system_database.json"
_FORMAT = 1
#: Candidates of a problem that are kept.
_KEPT = 4


@dataclass(frozen=True)
class TunedRecord:
    """A candidate that was measured while tuning.

    Parameters
    ----------
    problem : Problem
    device : DeviceProperties
        Of those only the arch, the name and the compute units are kept.
    solver, config : str
    time_ms : float
    """

    problem: Problem
    device: DeviceProperties
    solver: str
    config: str
    time_ms: float


class TunedCandidate(NamedTuple):
    """A candidate of a system database."""

    solver: str
    config: str
    time_ms: float


def write_system_database(folder: str | os.PathLike[str], records: Iterable[TunedRecord]) -> int:
    """Write the system database of one operation on one arch.

    Parameters
    ----------
    folder : path-like
        Of the operation, such as ``trained_models/kernels/sm_90/conv``. Made if it isn't there.
    records : iterable of TunedRecord
        All that was measured, also of what lost.

    Returns
    -------
    int
        Problems written.

    Examples
    --------
    >>> import tempfile
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> device = DeviceProperties("cuda", "NVIDIA H200", "sm_90", 132, 32, 49152, 1024)
    >>> problem = ConvProblem("F", 1, 3, (8, 8), 4, (3, 3))
    >>> record = TunedRecord(problem, device, "ConvNaive", "THREADS=64", 1.5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_system_database(folder, [record])
    ...     SystemDatabase.read(folder).candidates(problem, device)
    1
    (TunedCandidate(solver='ConvNaive', config='THREADS=64', time_ms=1.5),)
    """
    by_device: dict[tuple[str, str, int], dict[Problem, list[TunedRecord]]] = {}
    for record in records:
        of_device = by_device.setdefault(_device_key(record.device), defaultdict(list))
        of_device[record.problem].append(record)
    devices, count = [], 0
    for (arch, name, units), by_problem in sorted(by_device.items()):
        problems = {
            format_problem(problem): [
                [one.solver, one.config, float(f"{one.time_ms:.6g}")]
                for one in sorted(measured, key=lambda one: one.time_ms)[:_KEPT]
            ]
            for problem, measured in by_problem.items()
        }
        count += len(problems)
        devices.append(
            {
                "arch": arch,
                "name": name,
                "compute_units": units,
                "problems": dict(sorted(problems.items())),
            }
        )
    every = [of_problem for by_problem in by_device.values() for of_problem in by_problem.values()]
    content = {"format": _FORMAT, "solver_order": _solver_order(every), "devices": devices}
    Path(folder).mkdir(parents=True, exist_ok=True)
    with replace_file(Path(folder, FILE_NAME)) as temporary:
        temporary.write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")
    return count


class SystemDatabase:
    """Tuned answers of one operation on one arch.

    Parameters
    ----------
    content : mapping
        What the file holds.

    Attributes
    ----------
    solver_order : tuple of str
        Ids of solvers: the default config of the first that is applicable loses least.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.solver_order: tuple[str, ...] = tuple(content["solver_order"])
        self._devices = {
            (device["arch"], device["name"], device["compute_units"]): device["problems"]
            for device in content["devices"]
        }

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> SystemDatabase:
        """Read the database of an operation's folder.

        Raises
        ------
        InputError
            If there is none, or it is damaged.
        """
        path = Path(folder, FILE_NAME)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != _FORMAT:
                raise InputError(f"is of format {content['format']}, expected {_FORMAT}", str(path))
            return cls(content)
        except OSError as error:
            raise InputError(f"can't be read: {error.strerror}", str(path)) from None
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"is no system database ({error!r})", str(path)) from None

    def candidates(self, problem: Problem, device: DeviceProperties) -> tuple[TunedCandidate, ...]:
        """Give the fastest candidates of a problem, best first; none if it wasn't tuned.

        Only answers of such a device count: of this arch and name, with as many compute units. Its
        driver may differ.
        """
        problems = self._devices.get(_device_key(device))
        if problems is None:
            return ()
        return tuple(TunedCandidate(*one) for one in problems.get(format_problem(problem), ()))


@lru_cache(maxsize=16)
def shipped_database(arch: str, operation: str) -> SystemDatabase | None:
    """Give the database that comes with foretune; None if there is none.

    Raises
    ------
    InputError
        If it is damaged.
    """
    folder = _shipped_folder() / arch / operation
    return SystemDatabase.read(folder) if (folder / FILE_NAME).is_file() else None


def solver_order(arch: str, operation: str) -> tuple[str, ...]:
    """Ids of solvers, the one whose default loses least first.

    An arch that foretune wasn't tuned on takes the order of one that is like it: another GPU.
    Solvers that no database names come after the others, the naive one last.

    Examples
    --------
    >>> solver_order("gfx90a", "conv")[-1]
    'ConvNaive'
    """
    known = {solver.id: None for solver in solvers(operation)}
    database = shipped_database(arch, operation)
    if database is None and arch != "cpu":
        others = sorted(path.name for path in _shipped_folder().glob("*") if path.name != "cpu")
        found = (shipped_database(other, operation) for other in others)
        database = next((one for one in found if one is not None), None)
    first = [name for name in (database.solver_order if database else ()) if name in known]
    rest = [name for name in known if name not in first]
    ordered = [*first, *rest]
    return tuple(sorted(ordered, key=lambda name: name.endswith("Naive")))


def _shipped_folder() -> Path:
    from foretune import trained_models

    return Path(trained_models.__path__[0], "kernels")


def _device_key(device: DeviceProperties) -> tuple[str, str, int]:
    return device.arch, device.name, device.compute_units


def _solver_order(problems: Sequence[Sequence[TunedRecord]]) -> list[str]:
    """Order solvers so that taking the default of the first applicable one loses least.

    From a first guess, by median loss, one solver after another is moved to where it helps most.
    """
    losses = [loss for loss in map(_default_losses, problems) if loss]
    by_solver: dict[str, list[float]] = defaultdict(list)
    for loss in losses:
        for solver, value in loss.items():
            by_solver[solver].append(value)
    order = sorted(by_solver, key=lambda name: sorted(by_solver[name])[len(by_solver[name]) // 2])

    def total(tried: Sequence[str]) -> float:
        return sum(next(loss[name] for name in tried if name in loss) for loss in losses)

    best, is_improved = total(order), True
    while is_improved:
        is_improved = False
        for name in list(order):
            for place in range(len(order)):
                tried = [other for other in order if other != name]
                tried.insert(place, name)
                if total(tried) < best - 1e-9:
                    best, order, is_improved = total(tried), tried, True
    return order


def _default_losses(measured: Sequence[TunedRecord]) -> dict[str, float]:
    """Logarithm of each solver's default time over the best time of a problem."""
    first = measured[0]
    fastest = min(one.time_ms for one in measured)
    times = {(one.solver, one.config): one.time_ms for one in measured}
    losses = {}
    for solver in solvers(first.problem.operation):
        if solver.why_not(first.problem, first.device) is None:
            config = solver.default_config(first.problem, first.device).key
            if (solver.id, config) in times:
                losses[solver.id] = log(times[solver.id, config] / fastest)
    return losses
