"""The solver contract: what each way of computing a problem tells about itself.

A solver never touches a device. It says whether it can compute a problem, which configs it has,
and, as a `Plan`, which kernels to launch with which arguments. `foretune.kernels.runtime` builds
and launches them.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from foretune.kernels.problem import Problem
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.space import Config, Space

#: Parts of a workspace start at multiples of this, in bytes.
WORKSPACE_ALIGNMENT = 256

P = TypeVar("P", bound=Problem)


@dataclass(frozen=True)
class KernelSource:
    """A kernel and everything that decides its binary; sizes of problems are no part of it.

    Parameters
    ----------
    file : str
        Source below ``foretune/kernels``, such as "conv/solvers/naive.cl".
    name : str
        The kernel's function in it.
    macros : tuple of (str, int)
        Definitions. The threads of a block are the macro THREADS.

    Examples
    --------
    >>> KernelSource("conv/solvers/naive.cl", "conv_naive", (("THREADS", 64),)).threads
    64
    """

    file: str
    name: str
    macros: tuple[tuple[str, int], ...] = ()

    @cached_property
    def threads(self) -> int:
        """Threads of a block."""
        return dict(self.macros)["THREADS"]


@dataclass(frozen=True)
class Workspace:
    """A part of the workspace as an argument.

    Parameters
    ----------
    offset : int
        Bytes from the start, a multiple of `WORKSPACE_ALIGNMENT`.
    """

    offset: int = 0


#: A tensor's name, a part of the workspace, the bytes of a number or struct, or the null pointer.
Argument = str | Workspace | bytes | None


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Parameters
    ----------
    kernel : KernelSource
    grid : tuple of int
        Blocks in x, y, z. Each has ``kernel.threads`` threads, along x.
    arguments : tuple
        Tensor names, `Workspace` parts and packed scalars, in the kernel's order. An optional
        tensor that the caller didn't give (bias) is passed as the null pointer.
    """

    kernel: KernelSource
    grid: tuple[int, int, int]
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Plan:
    """Launches, in order, that compute a problem.

    Parameters
    ----------
    launches : tuple of Launch
    workspace : int
        Bytes of scratch memory, with no content expected at the start.
    """

    launches: tuple[Launch, ...]
    workspace: int = 0


class Solver(ABC, Generic[P]):
    """One way of computing the problems of an operation.

    Each lives in a file of its own below ``foretune.kernels.<operation>.solvers``, which ends by
    making one: ``SOLVER = MySolver()``. Nothing else has to know of it.
    """

    #: Stable: databases hold it.
    id: ClassVar[str]

    @abstractmethod
    def why_not(self, problem: P, device: DeviceProperties) -> str | None:
        """Say why it can't compute this problem on this device; None if it can.

        Constant time; nothing is compiled or run.
        """

    def is_applicable(self, problem: P, device: DeviceProperties) -> bool:
        """Whether it can compute this problem on this device correctly."""
        return self.why_not(problem, device) is None

    def why_never(self, device: DeviceProperties) -> str | None:  # noqa: ARG002
        """Say why it can compute no problem on this device; None if it can compute some."""
        return None

    def adds_atomically(self, problem: P, config: Mapping[str, int]) -> bool:  # noqa: ARG002
        """Whether results may differ from run to run, because blocks add atomically."""
        return False

    @abstractmethod
    def space(self, problem: P, device: DeviceProperties) -> Space:
        """All configs, for a problem that it is applicable to."""

    def bounds(self, problem: P, device: DeviceProperties) -> Space:
        """All configs, with any default: sooner to have than `space` where the default isn't."""
        return self.space(problem, device)

    def default_config(self, problem: P, device: DeviceProperties) -> Config:
        """Give a valid config without search: constant time, nothing is run."""
        return self.space(problem, device).default

    def workspace_size(self, problem: P, config: Config) -> int:
        """Bytes of scratch memory that a candidate needs."""
        return self.plan(problem, config).workspace

    @abstractmethod
    def plan(self, problem: P, config: Config, alpha: float = 1.0, beta: float = 0.0) -> Plan:
        """Say what to launch so that output = alpha * result (+ bias) + beta * output."""


@dataclass(frozen=True)
class Candidate(Generic[P]):
    """A solver with a config."""

    solver: Solver[P]
    config: Config

    @property
    def key(self) -> str:
        """Text form: the solver's id, and the config in braces if there is one."""
        return f"{self.solver.id}{{{self.config.key}}}" if self.config else self.solver.id


def pack(*values: int | float) -> bytes:
    """Lay out numbers as a kernel's struct: int for int, float for float, 4 bytes each.

    Examples
    --------
    >>> pack(1, 2.0).hex()
    '0100000000000040'
    """
    kinds = "".join("f" if isinstance(value, float) else "i" for value in values)
    return struct.pack("<" + kinds, *values)


def fast_divisor(divisor: int) -> tuple[int, int]:
    """Multiplier and shift for dividing numbers below 2**31 without a division.

    The struct FastDivisor of the preludes takes them; DIVIDE(n, d) is then
    ``(mul_high(n, multiplier) + n) >> shift``. Granlund and Montgomery, "Division by Invariant
    Integers using Multiplication", PLDI 1994, figure 4.1.

    Examples
    --------
    >>> multiplier, shift = fast_divisor(7)
    >>> [((n * (multiplier % 2**32) >> 32) + n) >> shift for n in (6, 7, 700, 2**31 - 1)]
    [0, 1, 100, 306783378]
    """
    shift = (divisor - 1).bit_length()
    multiplier = (2**32 * (2**shift - divisor)) // divisor + 1
    # struct packs signed; the kernel reads the same bits unsigned.
    return (multiplier - 2**32 if multiplier >= 2**31 else multiplier), shift


def embed(plan: Plan, names: Mapping[str, Argument], workspace: int) -> tuple[Launch, ...]:
    """Make a plan a part of another one.

    Parameters
    ----------
    plan : Plan
        Of a problem that is a step of a larger one, such as a matrix product.
    names : mapping
        What takes the place of the plan's tensors; one that it doesn't name is not given.
    workspace : int
        Where the plan's own workspace starts in that of the whole, a multiple of
        `WORKSPACE_ALIGNMENT`.

    Examples
    --------
    >>> kernel = KernelSource("gemm/solvers/naive.cl", "gemm_naive", (("THREADS", 64),))
    >>> part = Plan((Launch(kernel, (1, 1, 1), ("a", "b", "c", Workspace(256))),), 512)
    >>> embed(part, {"a": "w", "b": Workspace(), "c": "y"}, 4096)[0].arguments
    ('w', Workspace(offset=0), 'y', Workspace(offset=4352))
    """

    def placed(argument: Argument) -> Argument:
        if isinstance(argument, Workspace):
            return Workspace(workspace + argument.offset)
        return names.get(argument) if isinstance(argument, str) else argument

    return tuple(
        replace(launch, arguments=tuple(map(placed, launch.arguments))) for launch in plan.launches
    )


def align(size: int) -> int:
    """Round bytes up to where the next part of a workspace may start."""
    return -(-size // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT


def source_folder() -> Path:
    """Folder that kernel files are named from."""
    return Path(__file__).parent
