"""Carrying out plans on a device: build or reload the kernels, bind the arguments, launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from foretune.kernels.runtime.binaries import BinaryCache, binary_key
from foretune.kernels.runtime.compiling import Compiler
from foretune.kernels.runtime.device import (
    Buffer,
    CompileError,
    Device,
    DeviceError,
    Kernel,
    KernelFacts,
    LaunchArgument,
)
from foretune.kernels.runtime.source import whole_source
from foretune.kernels.solver import Argument, KernelSource, Plan, Workspace


class Executor:
    """Kernels of one device, built once, in child processes, and kept.

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
        self._compiler = Compiler(device.properties.backend, device.target)
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
            source, key = self._source_and_key(wanted)
            binary = self.cache.get(key)
            if binary is not None:
                # One that the driver doesn't take (any more) is built again.
                with suppress(DeviceError):
                    kernel = self.device.load(binary, wanted.name)
            if kernel is None:
                kernel = self.device.load(self._build(source, wanted.macros, key), wanted.name)
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
        if wanted in self._kernels:
            return True
        return self.cache.get(self._source_and_key(wanted)[1]) is not None

    def build_many(
        self,
        wanted: Iterable[KernelSource],
        workers: int = 1,
        progress: Callable[[int, int], None] | None = None,
    ) -> dict[KernelSource, str]:
        """See to it that binaries of kernels are in the cache.

        Parameters
        ----------
        wanted : iterable of KernelSource
        workers : int
            Child processes that compile at a time.
        progress : callable, optional
            Told how many are done, of how many, after each.

        Returns
        -------
        dict
            Kernels that can't be built, with the compiler's log or how it crashed.
        """
        failures: dict[KernelSource, str] = {}
        missing: dict[KernelSource, tuple[str, str]] = {}
        kernels = dict.fromkeys(wanted)
        for kernel in kernels:
            source, key = self._source_and_key(kernel)
            reason = self.cache.failure(key)
            if reason is not None:
                failures[kernel] = reason
            elif kernel not in self._kernels and self.cache.get(key) is None:
                missing[kernel] = (source, key)
        done = len(kernels) - len(missing)
        if progress is not None:
            progress(done, len(kernels))
        order = list(missing)
        jobs = [(missing[kernel][0], kernel.macros) for kernel in order]
        for index, result in self._compiler.compile_many(jobs, workers) if jobs else ():
            self.built += 1
            key = missing[order[index]][1]
            if isinstance(result, CompileError):
                failures[order[index]] = str(result)
                self.cache.put_failure(key, str(result))
            else:
                self.cache.put(key, result)
            done += 1
            if progress is not None:
                progress(done, len(kernels))
        return failures

    def close(self) -> None:
        """End the compiler's processes; they start again if they are needed again."""
        self._compiler.close()

    def _source_and_key(self, wanted: KernelSource) -> tuple[str, str]:
        properties = self.device.properties
        source = whole_source(wanted.file, properties.backend)
        return source, binary_key(source, wanted.macros, properties)

    def _build(self, source: str, macros: tuple[tuple[str, int], ...], key: str) -> bytes:
        reason = self.cache.failure(key)
        if reason is not None:
            raise CompileError(reason)
        self.built += 1
        try:
            binary = self._compiler.compile(source, macros)
        except CompileError as error:
            self.cache.put_failure(key, str(error))
            raise
        self.cache.put(key, binary)
        return binary


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
