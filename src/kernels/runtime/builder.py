"""Building kernels for a kind of device, which needn't be here, into the cache of binaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock

from foretune.kernels.runtime.binaries import BinaryCache, binary_key
from foretune.kernels.runtime.compiling import Compiler
from foretune.kernels.runtime.device import CompileError
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.runtime.source import whole_source
from foretune.kernels.solver import KernelSource


class Builder:
    """Builds what isn't in the cache yet.

    Parameters
    ----------
    properties : DeviceProperties
        Of the devices that it builds for.
    compiler : Compiler
    cache : BinaryCache, optional
        Default: the user's.

    Attributes
    ----------
    built : int
        Kernels that had to be compiled because no binary of them was there.
    """

    def __init__(
        self, properties: DeviceProperties, compiler: Compiler, cache: BinaryCache | None = None
    ) -> None:
        self.properties = properties
        self.cache = BinaryCache() if cache is None else cache
        self.built = 0
        self._compiler = compiler
        self._lock = Lock()

    def key(self, wanted: KernelSource) -> str:
        """Give the name of a kernel's binary in the cache."""
        return binary_key(self._source(wanted), wanted.macros, self.properties)

    def is_built(self, wanted: KernelSource) -> bool:
        """Whether a kernel can be had without a compiler."""
        return self.cache.get(self.key(wanted)) is not None

    def build(self, wanted: KernelSource) -> bytes:
        """Compile a kernel and keep its binary; several threads may.

        Raises
        ------
        CompileError
            If it can't be built, or couldn't lately.
        """
        key = self.key(wanted)
        reason = self.cache.failure(key)
        if reason is not None:
            raise CompileError(reason)
        with self._lock:
            self.built += 1
        try:
            binary = self._compiler.compile(self._source(wanted), wanted.macros)
        except CompileError as error:
            self.cache.put_failure(key, str(error))
            raise
        self.cache.put(key, binary)
        return binary

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
        order: list[KernelSource] = []
        kernels = dict.fromkeys(wanted)
        for kernel in kernels:
            reason = self.cache.failure(self.key(kernel))
            if reason is not None:
                failures[kernel] = reason
            elif not self.is_built(kernel):
                order.append(kernel)
        done = len(kernels) - len(order)
        if progress is not None:
            progress(done, len(kernels))
        jobs = [(self._source(kernel), kernel.macros) for kernel in order]
        for index, result in self._compiler.compile_many(jobs, workers) if jobs else ():
            self.built += 1
            key = self.key(order[index])
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

    def _source(self, wanted: KernelSource) -> str:
        return whole_source(wanted.file, self.properties.backend)
