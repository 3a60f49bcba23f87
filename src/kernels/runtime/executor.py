"""Carrying out plans on a device: build or reload the kernels, bind the arguments, launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from foretune.kernels.runtime.binaries import BinaryCache, binary_key
from foretune.kernels.runtime.device import Buffer, Device, Kernel, LaunchArgument
from foretune.kernels.runtime.source import whole_source
from foretune.kernels.solver import Argument, KernelSource, Plan, Workspace


class Executor:
    """Kernels of one device, built once and kept.

    Parameters
    ----------
    device : Device
    cache : BinaryCache, optional
        Default: the user's.

    Attributes
    ----------
    built : int
        Kernels that had to be compiled because no binary of them was there.
    """

    def __init__(self, device: Device, cache: BinaryCache | None = None) -> None:
        self.device = device
        self.cache = BinaryCache() if cache is None else cache
        self.built = 0
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
            kernel = self.device.load(self._binary(wanted), wanted.name)
            self._kernels[wanted] = kernel
        return kernel

    def build(self, wanted: Sequence[KernelSource]) -> None:
        """See to it that binaries of kernels are in the cache."""
        for kernel in wanted:
            self._binary(kernel)

    def _binary(self, wanted: KernelSource) -> bytes:
        properties = self.device.properties
        source = whole_source(wanted.file, properties.backend)
        key = binary_key(source, wanted.macros, properties)
        binary = self.cache.get(key)
        if binary is None:
            binary = self.device.compile(source, wanted.macros)
            self.built += 1
            self.cache.put(key, binary)
        return binary


def _bind(argument: Argument, buffers: Mapping[str, Buffer | None]) -> LaunchArgument:
    if isinstance(argument, bytes):
        return argument
    if isinstance(argument, Workspace):
        workspace = buffers["workspace"]
        assert workspace is not None, "the plan asks for a workspace"
        return workspace.part(argument.offset, workspace.nbytes - argument.offset)
    return buffers.get(argument)
