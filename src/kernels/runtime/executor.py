"""Carrying out plans on a device: build or reload the kernels, bind the arguments, launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from foretune.kernels.runtime.binaries import BinaryCache
from foretune.kernels.runtime.builder import Builder
from foretune.kernels.runtime.compiling import Compiler
from foretune.kernels.runtime.device import (
    Buffer,
    Device,
    DeviceError,
    Kernel,
    KernelFacts,
    LaunchArgument,
)
from foretune.kernels.solver import Argument, KernelSource, Plan, Workspace


class Executor(Builder):
    """Kernels of one device, built once, in child processes, and kept.

    Parameters
    ----------
    device : Device
    cache : BinaryCache, optional
        Default: the user's.
    """

    def __init__(self, device: Device, cache: BinaryCache | None = None) -> None:
        super().__init__(
            device.properties, Compiler(device.properties.backend, device.target), cache
        )
        self.device = device
        self._kernels: dict[KernelSource, Kernel] = {}

    def prepare(self, plan: Plan, buffers: Mapping[str, Buffer | None]) -> Callable[[], None]:
        """Build a plan's kernels and bind its arguments.

        Parameters
        ----------
        plan : Plan
        buffers : mapping
            Tensors by name (None for one that isn't given), and under "workspace" at least
            ``plan.workspace`` bytes if the plan asks for any.

        Returns
        -------
        callable
            Starts all launches, without waiting.

        Raises
        ------
        CompileError
            If a kernel can't be built.
        """
        bound = [
            self.kernel(launch.kernel).bind(
                launch.grid,
                launch.kernel.threads,
                [_bind(argument, buffers) for argument in launch.arguments],
            )
            for launch in plan.launches
        ]

        def run() -> None:
            for launch in bound:
                launch()

        return run

    def kernel(self, wanted: KernelSource) -> Kernel:
        """Give a loaded kernel, from memory, the cache or the compiler."""
        kernel = self._kernels.get(wanted)
        if kernel is None:
            binary = self.cache.get(self.key(wanted))
            if binary is not None:
                # One that the driver doesn't take (any more) is built again.
                with suppress(DeviceError):
                    kernel = self.device.load(binary, wanted.name)
            if kernel is None:
                kernel = self.device.load(self.build(wanted), wanted.name)
            self._kernels[wanted] = kernel
        return kernel

    def facts(self, plan: Plan) -> KernelFacts:
        """Tell the most that a kernel of a plan takes, where all of them are loaded and tell it."""
        kernels = [self._kernels.get(launch.kernel) for launch in plan.launches]
        try:
            facts = [KernelFacts() if kernel is None else kernel.facts for kernel in kernels]
        except DeviceError:
            return KernelFacts()
        return KernelFacts(
            _most(known.registers for known in facts),
            _most(known.spill_bytes for known in facts),
            _most(known.local_bytes for known in facts),
        )

    def is_built(self, wanted: KernelSource) -> bool:
        """Whether a kernel can be had without a compiler."""
        return wanted in self._kernels or super().is_built(wanted)


def _most(numbers: Iterable[int | None]) -> int | None:
    told = list(numbers)
    known = [number for number in told if number is not None]
    return max(known) if known and len(known) == len(told) else None


def _bind(argument: Argument, buffers: Mapping[str, Buffer | None]) -> LaunchArgument:
    if argument is None or isinstance(argument, bytes):
        return argument
    if isinstance(argument, Workspace):
        workspace = buffers["workspace"]
        assert workspace is not None, "the plan asks for a workspace"
        return workspace.part(argument.offset, workspace.nbytes - argument.offset)
    return buffers.get(argument)
