"""AMD GPUs through hip-python: the HIP run-time, and HIPRTC beside it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.errors import InputError
from foretune.kernels.runtime.addresses import AddressBuffer, Parameters, address_of
from foretune.kernels.runtime.amd_code import kernel_facts
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

_HOW_TO_GET = "pip install hip-python, of the version that goes with the installed ROCm"
#: What hipMalloc answers if there is no memory.
_OUT_OF_MEMORY = 2
#: The libraries of AMD's compiler support that know which archs they compile for.
_COMGR = ("libamd_comgr.so.3", "libamd_comgr.so.2", "libamd_comgr.so")


@lru_cache(maxsize=1)
def why_absent() -> str | None:
    """Say in one line why no AMD GPU can be used, and how to get one; None if one can."""
    if find_spec("hip") is None:
        return f"hip-python is not installed; {_HOW_TO_GET}"
    try:
        status, found = _hip().hipGetDeviceCount()
    except (ImportError, RuntimeError):  # no library, or one without the function
        return (
            "no ROCm run-time (libamdhip64.so) can be loaded; install ROCm, or put its lib folder "
            "on LD_LIBRARY_PATH"
        )
    if int(status) == 0 and found:
        return None
    node = Path("/dev/kfd")
    if not node.exists():
        return "a ROCm run-time is here, but no AMD GPU with a driver (no /dev/kfd)"
    if not os.access(node, os.R_OK | os.W_OK):
        return f"no permission on {node}; add your user to the groups render and video"
    return "the ROCm run-time sees no device; check rocminfo and HIP_VISIBLE_DEVICES"


def count() -> int:
    """AMD GPUs that are here."""
    if why_absent() is not None:
        return 0
    return int(_call(_hip().hipGetDeviceCount))


def open_device(index: int = 0, *, processor: bool = False) -> HipDevice:  # noqa: ARG001
    """Open the device of this index; none is a processor."""
    found = count()
    if index >= found:
        raise InputError(f"there are {found} AMD GPUs, asked for number {index}", "device")
    return HipDevice(index)


def compiler(arch: str) -> Callable[[str, Sequence[tuple[str, int]]], bytes]:
    """Give a function that compiles a source with macros for an arch; needs no device."""
    hiprtc = _hiprtc()
    known = known_archs()
    if known and arch not in known:
        # Old releases crash when they are asked for what they don't know.
        raise CompileError(f"the installed ROCm is too old for {arch}, which it does not name")

    def build(source: str, macros: Sequence[tuple[str, int]]) -> bytes:
        options = [f"--offload-arch={arch}", "-O3"]
        options += [f"-D{macro}={value}" for macro, value in macros]
        encoded = [option.encode() for option in options]
        program = _call(hiprtc.hiprtcCreateProgram, source.encode(), b"kernel.hip", 0, None, None)
        try:
            (status,) = hiprtc.hiprtcCompileProgram(program, len(encoded), encoded)
            if int(status) != 0:
                raise CompileError(_log(program) or f"HIPRTC: status {int(status)}")
            binary = bytearray(_call(hiprtc.hiprtcGetCodeSize, program))
            _call(hiprtc.hiprtcGetCode, program, binary)
        finally:
            hiprtc.hiprtcDestroyProgram(program.createRef())
        return bytes(binary)

    return build


def compiler_version() -> str:
    """Name and version of what compiles."""
    return f"HIPRTC of {_release()}"


def compiler_facts(arch: str) -> dict[str, str]:  # noqa: ARG001
    """Tell the properties of a device that what compiles here decides."""
    return {"compiler": compiler_version()}


def known_archs() -> frozenset[str]:
    """Archs that the installed compiler support names; empty if it can't be asked."""
    for name in _COMGR:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        found = ctypes.c_size_t()
        library.amd_comgr_get_isa_count(ctypes.byref(found))
        text = ctypes.c_char_p()
        names = []
        for index in range(found.value):
            library.amd_comgr_get_isa_name(ctypes.c_size_t(index), ctypes.byref(text))
            names.append((text.value or b"").decode().rpartition("-")[2])
        return frozenset(names)
    return frozenset()


class HipKernel(Kernel):
    """A function of a loaded module."""

    def __init__(self, device: HipDevice, binary: bytes, name: str) -> None:
        self._device = device
        self._binary = binary
        self._name = name
        # The function goes with its module.
        self._module = _call(_hip().hipModuleLoadData, binary)
        self._function = _call(_hip().hipModuleGetFunction, self._module, name.encode())

    @property
    def facts(self) -> KernelFacts:
        """What the code object says."""
        return kernel_facts(self._binary, self._name)

    def bind(
        self, grid: tuple[int, int, int], threads: int, arguments: Sequence[LaunchArgument]
    ) -> Callable[[], None]:
        """Lay out the parameters once."""
        device, function = self._device, self._function
        parameters = Parameters(arguments)
        launch_kernel = _hip().hipModuleLaunchKernel

        def launch() -> None:
            with device.current():
                (status,) = launch_kernel(
                    *(function, *grid, threads, 1, 1, 0, device.stream, parameters.address, None)
                )
            if int(status) != 0:
                _raise(int(status), "hipModuleLaunchKernel")

        return launch


class HipDevice(Device):
    """An AMD GPU."""

    def __init__(self, index: int) -> None:
        self._hip = hip = _hip()
        self.index = index
        with self.current():
            # A stream that waits for no other: work of the default stream would be timed with it.
            self.stream: Any = _call(hip.hipStreamCreateWithFlags, hip.hipStreamNonBlocking)
            self._events = [_call(hip.hipEventCreate) for _ in range(2)]
            self.properties = self._properties()
        self.target = (self.properties.arch,)

    def _properties(self) -> DeviceProperties:
        attribute = self._hip.hipDeviceAttribute_t

        def get(name: str) -> int:
            number = getattr(attribute, f"hipDeviceAttribute{name}")
            return int(_call(self._hip.hipDeviceGetAttribute, number, self.index))

        arch = self._arch()
        memory_hz = 1e3 * get("MemoryClockRate")
        return DeviceProperties(
            backend="hip",
            name=_text(_call(self._hip.hipDeviceGetName, 256, self.index)) or arch,
            arch=arch,
            compute_units=get("MultiprocessorCount"),
            wave_size=get("WarpSize"),
            local_memory=get("MaxSharedMemoryPerBlock"),
            max_threads=get("MaxThreadsPerBlock"),
            clock_mhz=get("ClockRate") // 1000,
            # Two transfers in each clock.
            bandwidth_gbs=2 * memory_hz * get("MemoryBusWidth") / 8 / 1e9,
            l2_bytes=get("L2CacheSize"),
            memory_bytes=int(_call(self._hip.hipMemGetInfo)[1]),
            driver=_release(),
            compiler=compiler_version(),
        )

    def _arch(self) -> str:
        """Arch without its features: binaries for it run with all of them."""
        # The one fact that is no attribute. A run-time that lacks this version of the call raises.
        with suppress(RuntimeError):
            facts = _call(self._hip.hipGetDeviceProperties, self.index)
            name = getattr(facts, "gcnArchName", b"")
            if _text(name).startswith("gfx"):
                return _text(name).partition(":")[0]
        bus = _text(_call(self._hip.hipDeviceGetPCIBusId, 64, self.index))
        return arch_of_bus(bus, Path("/sys/class/kfd/kfd/topology/nodes"))

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make this the thread's device for a while."""
        before = int(_call(self._hip.hipGetDevice))
        if before != self.index:
            _call(self._hip.hipSetDevice, self.index)
        try:
            yield
        finally:
            if before != self.index:
                self._hip.hipSetDevice(before)

    def compile(self, source: str, macros: Sequence[tuple[str, int]]) -> bytes:
        """Build a code object."""
        return compiler(*self.target)(source, macros)

    def load(self, binary: bytes, name: str) -> HipKernel:
        """Load a function of a code object."""
        with self.current():
            return HipKernel(self, binary, name)

    def alloc(self, nbytes: int) -> AddressBuffer:
        """Take memory."""
        with self.current():
            address = int(_call(self._hip.hipMalloc, max(1, nbytes)))
        return AddressBuffer(address, nbytes, self._free)

    def _free(self, address: int) -> None:
        with self.current():
            _call(self._hip.hipFree, address)

    def write(self, buffer: Buffer, data: npt.NDArray[Any]) -> None:
        """Copy to the device."""
        if data.nbytes:
            source = np.ascontiguousarray(data)
            with self.current():
                _call(
                    self._hip.hipMemcpyHtoDAsync,
                    *(address_of(buffer), source.ctypes.data, source.nbytes, self.stream),
                )
                _call(self._hip.hipStreamSynchronize, self.stream)

    def read(self, buffer: Buffer, out: npt.NDArray[Any]) -> None:
        """Copy from the device."""
        if out.nbytes:
            with self.current():
                _call(
                    self._hip.hipMemcpyDtoHAsync,
                    *(out.ctypes.data, address_of(buffer), out.nbytes, self.stream),
                )
                _call(self._hip.hipStreamSynchronize, self.stream)

    def fill(self, buffer: Buffer, byte: int) -> None:
        """Enqueue a fill."""
        if buffer.nbytes:
            with self.current():
                _call(
                    self._hip.hipMemsetD8Async,
                    *(address_of(buffer), byte, buffer.nbytes, self.stream),
                )

    def wrap(self, address: int, nbytes: int) -> AddressBuffer:
        """See the memory of another library of this process."""
        return AddressBuffer(address, nbytes)

    @contextmanager
    def on_stream(self, handle: int) -> Iterator[None]:
        """Start everything on a stream of the caller for a while."""
        own, self.stream = self.stream, handle
        try:
            yield
        finally:
            self.stream = own

    def stream_number(self) -> int:
        """Give the number of the stream as DLPack counts."""
        return int(self.stream)

    def synchronize(self) -> None:
        """Wait for the stream."""
        with self.current():
            _call(self._hip.hipStreamSynchronize, self.stream)

    def time_ms(self, work: Callable[[], None]) -> float:
        """Time between two events around the launches."""
        before, after = self._events
        with self.current():
            _call(self._hip.hipEventRecord, before, self.stream)
            work()
            _call(self._hip.hipEventRecord, after, self.stream)
            _call(self._hip.hipEventSynchronize, after)
            return float(_call(self._hip.hipEventElapsedTime, before, after))


def arch_of_bus(bus: str, nodes: Path) -> str:
    """Arch of the GPU at a PCI address ("0000:83:00.0"), as the kernel driver's folder tells it.

    Its target versions are decimal: 90010 is gfx90a.
    """
    domain, number, rest = bus.split(":")
    device, function = rest.split(".")
    location = int(number, 16) << 8 | int(device, 16) << 3 | int(function, 16)
    for path in sorted(nodes.glob("*/properties")):
        facts = dict(line.split() for line in path.read_text().splitlines() if " " in line)
        version = int(facts.get("gfx_target_version", 0))
        same = int(facts.get("location_id", 0)) == location
        if version and same and int(facts.get("domain", 0)) == int(domain, 16):
            return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
    raise DeviceError(f"the driver tells no arch for the GPU at {bus}")


def _hip() -> Any:
    """Give the binding, which has no types."""
    from hip import hip

    return hip


def _hiprtc() -> Any:
    from hip import hiprtc

    return hiprtc


def _release() -> str:
    version = int(_call(_hip().hipRuntimeGetVersion))
    return f"HIP {version // 10_000_000}.{version // 100_000 % 100}.{version % 100_000}"


def _log(program: Any) -> str:
    hiprtc = _hiprtc()
    log = bytearray(max(1, _call(hiprtc.hiprtcGetProgramLogSize, program)))
    _call(hiprtc.hiprtcGetProgramLog, program, log)
    return log.rstrip(b"\0 \n").decode(errors="replace")


def _text(value: Any) -> str:
    """Text of what the binding gives for char arrays: bytes, str or a C string."""
    if isinstance(value, str):
        return value
    return bytes(value).split(b"\0")[0].decode(errors="replace")


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call HIP or HIPRTC; give what it returns beside the status."""
    status, *values = function(*arguments)
    if int(status) != 0:
        _raise(int(status), function.__name__)
    return values[0] if len(values) == 1 else tuple(values)


def _raise(status: int, call: str) -> None:
    if call.startswith("hiprtc"):
        raise CompileError(f"{call}: status {status}")
    try:
        message = f"{call}: {_hip().hipError_t(status).name}"
    except ValueError:
        message = f"{call}: status {status}"
    raise OutOfDeviceMemoryError(message) if status == _OUT_OF_MEMORY else DeviceError(message)
