"""NVIDIA GPUs through cuda-bindings: the driver, and NVRTC from its wheel."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.errors import InputError
from foretune.kernels.runtime.addresses import AddressBuffer, Parameters, address_of
from foretune.kernels.runtime.device import (
    Buffer,
    CompileError,
    Device,
    DeviceError,
    Kernel,
    KernelFacts,
    LaunchArgument,
    OutOfDeviceMemoryError,
)
from foretune.kernels.runtime.properties import DeviceProperties

_HOW_TO_GET = "pip install 'foretune[cuda]'"
#: One thread waits for a word of the host's memory to change, 20 ms at most: what is launched
#: behind it starts without gaps, however long launching takes, and a full queue can't lock up.
_GATE = b"""
.version 7.0
.target sm_50
.address_size 64
.visible .entry gate(.param .u64 word) {
    .reg .u64 %address, %start, %now;
    .reg .u32 %value;
    .reg .pred %go;
    ld.param.u64 %address, [word];
    mov.u64 %start, %globaltimer;
again:
    ld.volatile.global.u32 %value, [%address];
    setp.ne.u32 %go, %value, 0;
    @%go bra done;
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %go, %now, 20000000;
    @%go bra again;
done:
    ret;
}
\0"""
#: Drivers answer so if there is no memory, and if there is no device.
_OUT_OF_MEMORY, _NO_DEVICE = 2, 100


@lru_cache(maxsize=1)
def why_absent() -> str | None:
    """Say in one line why no CUDA device can be used, and how to get one; None if one can."""
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return f"cuda-bindings is not installed; {_HOW_TO_GET}"
    from cuda.bindings import driver

    try:
        status = int(driver.cuInit(0)[0])
    except RuntimeError:  # the driver's library can't be found
        return "no NVIDIA driver (libcuda.so.1) on this machine; install it from the distribution"
    if status == 0:
        found = int(driver.cuDeviceGetCount()[1])
        return None if found else "the NVIDIA driver sees no device"
    for node in (Path("/dev/nvidiactl"), Path("/dev/nvidia0")):
        if node.exists() and not os.access(node, os.R_OK | os.W_OK):
            return f"no permission on {node}; ask for read and write access to it"
    if status == _NO_DEVICE:
        return "the NVIDIA driver sees no device; check nvidia-smi and CUDA_VISIBLE_DEVICES"
    return f"the NVIDIA driver does not start: cuInit: {_error_name(status)}; check nvidia-smi"


def count() -> int:
    """CUDA devices that are here."""
    if why_absent() is not None:
        return 0
    from cuda.bindings import driver

    return int(_call(driver.cuDeviceGetCount))


def open_device(index: int = 0, *, processor: bool = False) -> CudaDevice:  # noqa: ARG001
    """Open the device of this index; none is a processor."""
    found = count()
    if index >= found:
        raise InputError(f"there are {found} CUDA devices, asked for number {index}", "device")
    return CudaDevice(index)


def compiler(arch: str) -> Callable[[str, Sequence[tuple[str, int]]], bytes]:
    """Give a function that compiles a source with macros for an arch; needs no device.

    From Hopper on, instructions of one generation alone ("sm_90a") may be used, since binaries
    are the device's own.
    """
    from cuda.bindings import nvrtc

    name = f"{arch}a" if int(arch.removeprefix("sm_")) >= 90 else arch

    def build(source: str, macros: Sequence[tuple[str, int]]) -> bytes:
        options = [f"--gpu-architecture={name}", "--std=c++17", "-default-device"]
        options += [f"-D{macro}={value}" for macro, value in macros]
        encoded = [option.encode() for option in options]
        try:
            program = _call(nvrtc.nvrtcCreateProgram, source.encode(), b"kernel.cu", 0, [], [])
        except RuntimeError as error:
            raise CompileError(f"NVRTC: {error}; {_HOW_TO_GET}") from None
        try:
            (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
            if int(status) != 0:
                log = b" " * _call(nvrtc.nvrtcGetProgramLogSize, program)
                _call(nvrtc.nvrtcGetProgramLog, program, log)
                text = log.rstrip(b"\0 ").decode(errors="replace")
                raise CompileError(text or f"NVRTC: status {int(status)}")
            cubin = b" " * _call(nvrtc.nvrtcGetCUBINSize, program)
            _call(nvrtc.nvrtcGetCUBIN, program, cubin)
        finally:
            nvrtc.nvrtcDestroyProgram(program)
        return bytes(cubin)

    return build


def compiler_facts(arch: str) -> dict[str, str]:  # noqa: ARG001
    """Tell the properties of a device that what compiles here decides."""
    return {"compiler": _compiler_version()}


class CudaKernel(Kernel):
    """A function of a loaded module."""

    def __init__(self, device: CudaDevice, function: Any, dynamic_local: int = 0) -> None:
        self._device = device
        self._function = function
        self._dynamic_local = dynamic_local

    @property
    def facts(self) -> KernelFacts:
        """Ask the driver; what it calls local memory is a thread's, for spills and arrays."""
        return KernelFacts(
            self._attribute("NUM_REGS"),
            self._attribute("LOCAL_SIZE_BYTES"),
            self._attribute("SHARED_SIZE_BYTES") + self._dynamic_local,
        )

    def _attribute(self, name: str) -> int:
        from cuda.bindings import driver

        number = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        with self._device.current():
            return int(_call(driver.cuFuncGetAttribute, number, self._function))

    def bind(
        self, grid: tuple[int, int, int], threads: int, arguments: Sequence[LaunchArgument]
    ) -> Callable[[], None]:
        """Lay out the parameters once."""
        from cuda.bindings import driver

        device, function, dynamic_local = self._device, self._function, self._dynamic_local
        parameters = Parameters(arguments)
        launch_kernel = driver.cuLaunchKernel

        def launch() -> None:
            with device.current():
                (status,) = launch_kernel(
                    *(function, *grid, threads, 1, 1, dynamic_local),
                    *(device.stream, parameters.address, 0),
                )
            if status != 0:
                _raise(int(status), "cuLaunchKernel")

        return launch


class CudaDevice(Device):
    """A CUDA device, in its primary context, which other libraries of the process share."""

    def __init__(self, index: int) -> None:
        from cuda.bindings import driver

        self._driver = driver
        _call(driver.cuInit, 0)
        self._device = _call(driver.cuDeviceGet, index)
        self._context = _call(driver.cuDevicePrimaryCtxRetain, self._device)
        self.index = index
        with self.current():
            # A stream that waits for no other: work of the default stream would be timed with it.
            self.stream: Any = _call(driver.cuStreamCreate, 1)
            self._events = [_call(driver.cuEventCreate, 0) for _ in range(2)]
        self.properties = self._properties()
        self.target = (self.properties.arch,)

    def _properties(self) -> DeviceProperties:
        attribute = self._driver.CUdevice_attribute

        def get(name: str) -> int:
            number = getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
            return int(_call(self._driver.cuDeviceGetAttribute, number, self._device))

        name = _call(self._driver.cuDeviceGetName, 128, self._device).split(b"\0")[0].decode()
        memory_hz = 1e3 * get("MEMORY_CLOCK_RATE")
        version = int(_call(self._driver.cuDriverGetVersion))
        return DeviceProperties(
            backend="cuda",
            name=name,
            arch=f"sm_{get('COMPUTE_CAPABILITY_MAJOR')}{get('COMPUTE_CAPABILITY_MINOR')}",
            compute_units=get("MULTIPROCESSOR_COUNT"),
            wave_size=get("WARP_SIZE"),
            local_memory=get("MAX_SHARED_MEMORY_PER_BLOCK"),
            max_threads=get("MAX_THREADS_PER_BLOCK"),
            dynamic_local_memory=get("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            clock_mhz=get("CLOCK_RATE") // 1000,
            # Two transfers in each clock.
            bandwidth_gbs=2 * memory_hz * get("GLOBAL_MEMORY_BUS_WIDTH") / 8 / 1e9,
            l2_bytes=get("L2_CACHE_SIZE"),
            memory_bytes=int(_call(self._driver.cuDeviceTotalMem, self._device)),
            driver=f"CUDA {version // 1000}.{version % 1000 // 10}",
            compiler=_compiler_version(),
        )

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make this device's context the thread's own for a while."""
        _call(self._driver.cuCtxPushCurrent, self._context)
        try:
            yield
        finally:
            self._driver.cuCtxPopCurrent()

    def compile(self, source: str, macros: Sequence[tuple[str, int]]) -> bytes:
        """Build a cubin."""
        return compiler(*self.target)(source, macros)

    def load(self, binary: bytes, name: str) -> CudaKernel:
        """Load a function of a cubin."""
        with self.current():
            module = _call(self._driver.cuModuleLoadData, binary)
            function = _call(self._driver.cuModuleGetFunction, module, name.encode())
            dynamic = self._dynamic_local(module)
            if dynamic:
                attribute = self._driver.CUfunction_attribute
                limit = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                _call(self._driver.cuFuncSetAttribute, function, limit, dynamic)
        return CudaKernel(self, function, dynamic)

    def _dynamic_local(self, module: Any) -> int:
        """Bytes that a kernel asks for by DYNAMIC_LOCAL_SIZE; 0 if it doesn't."""
        status, address, _ = self._driver.cuModuleGetGlobal(module, b"dynamic_local_bytes")
        if status != 0:
            return 0
        size = np.zeros(1, np.int32)
        _call(self._driver.cuMemcpyDtoH, size.ctypes.data, address, size.nbytes)
        return int(size[0])

    def alloc(self, nbytes: int) -> AddressBuffer:
        """Take memory."""
        with self.current():
            address = int(_call(self._driver.cuMemAlloc, max(1, nbytes)))
        return AddressBuffer(address, nbytes, self._free)

    def _free(self, address: int) -> None:
        with self.current():
            _call(self._driver.cuMemFree, address)

    def write(self, buffer: Buffer, data: npt.NDArray[Any]) -> None:
        """Copy to the device."""
        if data.nbytes:
            source = np.ascontiguousarray(data)
            with self.current():
                _call(
                    self._driver.cuMemcpyHtoDAsync,
                    *(address_of(buffer), source.ctypes.data, source.nbytes, self.stream),
                )
                _call(self._driver.cuStreamSynchronize, self.stream)

    def read(self, buffer: Buffer, out: npt.NDArray[Any]) -> None:
        """Copy from the device."""
        if out.nbytes:
            with self.current():
                _call(
                    self._driver.cuMemcpyDtoHAsync,
                    *(out.ctypes.data, address_of(buffer), out.nbytes, self.stream),
                )
                _call(self._driver.cuStreamSynchronize, self.stream)

    def fill(self, buffer: Buffer, byte: int) -> None:
        """Enqueue a fill."""
        if buffer.nbytes:
            with self.current():
                _call(
                    self._driver.cuMemsetD8Async,
                    *(address_of(buffer), byte, buffer.nbytes, self.stream),
                )

    def wrap(self, address: int, nbytes: int) -> AddressBuffer:
        """See the memory of another library of this process."""
        return AddressBuffer(address, nbytes)

    @contextmanager
    def on_stream(self, handle: int) -> Iterator[None]:
        """Start everything on a stream of the caller for a while."""
        own, self.stream = self.stream, self._driver.CUstream(handle)
        try:
            yield
        finally:
            self.stream = own

    def stream_number(self) -> int:
        """Give the number of the stream as DLPack counts: 1 is the default stream."""
        return int(self.stream) or 1

    def synchronize(self) -> None:
        """Wait for the stream."""
        with self.current():
            _call(self._driver.cuStreamSynchronize, self.stream)

    def time_ms(self, work: Callable[[], None]) -> float:
        """Time between two events around the launches."""
        before, after = self._events
        gate, word = self._gate
        with self.current():
            word.value = 0
            gate()
            _call(self._driver.cuEventRecord, before, self.stream)
            try:
                work()
                _call(self._driver.cuEventRecord, after, self.stream)
            finally:
                word.value = 1
            _call(self._driver.cuEventSynchronize, after)
            return float(_call(self._driver.cuEventElapsedTime, before, after))

    @cached_property
    def _gate(self) -> tuple[Callable[[], None], ctypes.c_uint32]:
        """Give what holds the stream back, and the word that opens it."""
        with self.current():
            word = _call(self._driver.cuMemHostAlloc, 64, 2)
            address = int(_call(self._driver.cuMemHostGetDevicePointer, word, 0))
        kernel = self.load(_GATE, "gate")
        opened = ctypes.c_uint32.from_address(int(word))
        return kernel.bind((1, 1, 1), 1, [AddressBuffer(address, 4)]), opened


@lru_cache(maxsize=1)
def _compiler_version() -> str:
    from cuda.bindings import nvrtc

    try:
        _, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError:  # the library can't be found
        return "no NVRTC"
    return f"NVRTC {major}.{minor}"


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the driver or NVRTC; give what it returns beside the status."""
    status, *values = function(*arguments)
    if status != 0:
        _raise(int(status), function.__name__)
    return values[0] if len(values) == 1 else tuple(values)


def _raise(status: int, call: str) -> None:
    if call.startswith("nvrtc"):
        raise CompileError(f"{call}: status {status}")
    message = f"{call}: {_error_name(status)}"
    raise OutOfDeviceMemoryError(message) if status == _OUT_OF_MEMORY else DeviceError(message)


def _error_name(status: int) -> str:
    from cuda.bindings import driver

    try:
        return str(driver.CUresult(status).name)
    except ValueError:
        return f"status {status}"
