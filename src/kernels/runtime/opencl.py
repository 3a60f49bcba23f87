"""OpenCL: processors through a CPU run-time from PyPI, and any GPU that has a driver for it."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.errors import InputError
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

#: Seconds that PoCL may take to compile a launch.
_LAUNCH_TIMEOUT = 60.0
_HOW_TO_GET = "pip install 'foretune[cpu]'"
#: Libraries of Intel's run-time that it expects to be loaded before it.
_INTEL_NEEDS = ("libintlc.so.5", "libirng.so", "libimf.so", "libsvml.so", "libtbb.so.12")


def why_absent() -> str | None:
    """Say in one line why no OpenCL device can be used, and how to get one; None if one can."""
    if find_spec("pyopencl") is None:
        return f"pyopencl is not installed; {_HOW_TO_GET}"
    if not _devices():
        return f"no OpenCL platform has a device; {_HOW_TO_GET}"
    return None


def open_device(index: int = 0, *, processor: bool = False) -> OpenCLDevice:
    """Open the device of this index; with ``processor`` among processors alone."""
    devices = [device for device in _devices() if not processor or _is_processor(device)]
    if index >= len(devices):
        kind = "processors" if processor else "OpenCL devices"
        raise InputError(f"there are {len(devices)} {kind}, asked for number {index}", "device")
    return OpenCLDevice(devices[index])


def count() -> int:
    """OpenCL devices that are here."""
    return len(_devices()) if find_spec("pyopencl") else 0


def count_processors() -> int:
    """Processors among them; they come last."""
    return sum(map(_is_processor, _devices())) if find_spec("pyopencl") else 0


def compiler(place: int) -> Callable[[str, Sequence[tuple[str, int]]], bytes]:
    """Give a function that compiles a source with macros for the device of this place."""
    import pyopencl as cl

    device = _devices()[place]
    context = cl.Context([device])

    def build(source: str, macros: Sequence[tuple[str, int]]) -> bytes:
        return _build(context, device, source, macros)

    return build


def compiler_facts(place: int) -> dict[str, str]:
    """Tell the properties of a device that what compiles here decides: it compiles for itself."""
    device = _devices()[place]
    return {"compiler": _version(device), "name": device.name.strip()}


def _build(context: Any, device: Any, source: str, macros: Sequence[tuple[str, int]]) -> bytes:
    import pyopencl as cl

    options = [f"-D{name}={value}" for name, value in macros]
    program = cl.Program(context, source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program.build(options, [device], cache_dir=False)  # type: ignore[arg-type]
    except cl.RuntimeError as error:
        raise CompileError(str(error)) from None
    if "Portable Computing Language" in device.platform.name:
        _compile_launches(_devices().index(device), source, options, program.kernel_names)
    binaries: Any = program.get_info(cl.program_info.BINARIES)
    return bytes(binaries[0])


def _compile_launches(place: int, source: str, options: list[str], names: str) -> None:
    """Have PoCL compile what it otherwise would at the first launches of small and large grids.

    It keeps that beside the program, and binaries taken afterwards hold it. The launches mean
    nothing and may crash, so a child does them; what was compiled before stays.
    """
    from foretune.kernels.runtime.worker import Worker, WorkerError

    for name in names.split(";"):
        for blocks in (1, 1 << 16):
            request = {"source": source, "options": options, "name": name, "blocks": blocks}
            with (
                Worker(f"{__name__}:answer_launches", place) as worker,
                suppress(WorkerError),
            ):
                worker.call(request, _LAUNCH_TIMEOUT)


def answer_launches(place: int) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Give a child's function: launch a kernel whose numbers are all zero."""
    import pyopencl as cl

    device = _devices()[place]
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    memory = cl.Buffer(context, cl.mem_flags.READ_WRITE, 1 << 20)

    def answer(request: Mapping[str, Any]) -> dict[str, Any]:
        program = cl.Program(context, request["source"])
        program.build(request["options"], [device], cache_dir=False)  # type: ignore[arg-type]
        kernel = cl.Kernel(program, request["name"])
        for index in range(kernel.num_args):
            _set_to_zero(kernel, index, memory)
        (threads, *_) = kernel.get_work_group_info(
            cl.kernel_work_group_info.COMPILE_WORK_GROUP_SIZE, device
        )
        size = (request["blocks"] * threads, 1, 1)
        cl.enqueue_nd_range_kernel(queue, kernel, size, (threads, 1, 1))
        queue.finish()
        return {}

    return answer


def _set_to_zero(kernel: Any, index: int, memory: Any) -> None:
    import pyopencl as cl

    # The size of a struct can't be asked for.
    for value in (memory, *map(bytes, range(4, 1024, 4))):
        try:
            kernel.set_arg(index, value)
        except cl.LogicError:
            continue
        return


@lru_cache(maxsize=1)
def _devices() -> tuple[Any, ...]:
    """All devices: GPUs first, then the processor once for each run-time, Intel's first."""
    _find_intel_runtime()
    import pyopencl as cl

    try:
        platforms = cl.get_platforms()
    except cl.LogicError:  # the loader knows no platform
        return ()
    devices = []
    for platform in platforms:
        try:
            devices += platform.get_devices()
        except cl.RuntimeError:  # a platform without devices
            continue
    return tuple(sorted(devices, key=lambda d: (_is_processor(d), "Intel" not in d.platform.name)))


def _version(device: Any) -> str:
    return f"{device.platform.name.strip()} {device.driver_version}"


def _is_processor(device: Any) -> bool:
    import pyopencl as cl

    return bool(device.type & cl.device_type.CPU)


def _find_intel_runtime() -> None:
    """Make the wheels of Intel's run-time usable; they name a path of their build machine.

    The environment is left alone if the user chose vendors.
    """
    library = Path(sys.prefix, "lib", "libintelocl.so")
    if not library.exists() or "OCL_ICD_VENDORS" in os.environ:
        return
    for name in _INTEL_NEEDS:
        needed = library.with_name(name)
        if needed.exists():
            ctypes.CDLL(str(needed), mode=ctypes.RTLD_GLOBAL)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "intel.icd").write_text(f"{library}\n")
        for vendor in Path("/etc/OpenCL/vendors").glob("*.icd"):
            Path(folder, vendor.name).write_bytes(vendor.read_bytes())
        os.environ["OCL_ICD_VENDORS"] = folder
        try:
            import pyopencl as cl

            cl.get_platforms()
        except (ImportError, cl.LogicError):
            pass
        finally:
            del os.environ["OCL_ICD_VENDORS"]


class OpenCLBuffer(Buffer):
    """Memory of an OpenCL context."""

    def __init__(self, memory: Any, nbytes: int, whole: Any = None, offset: int = 0) -> None:
        self.memory = memory
        self.nbytes = nbytes
        self._whole = memory if whole is None else whole
        self._offset = offset

    def part(self, offset: int, nbytes: int) -> OpenCLBuffer:
        """View a part as a sub-buffer, of the whole since parts have none."""
        if offset == 0 and nbytes == self.nbytes:
            return self
        place = self._offset + offset
        memory = self._whole.get_sub_region(place, max(1, nbytes))
        return OpenCLBuffer(memory, nbytes, self._whole, place)

    def free(self) -> None:
        """Drop the memory; OpenCL gives it back once no part is used."""
        self.memory = self._whole = None


class OpenCLKernel(Kernel):
    """A kernel of a built program."""

    def __init__(self, queue: Any, program: Any, name: str) -> None:
        self._queue = queue
        self._program = program
        self._name = name
        # Making one takes pyopencl longer than most launches.
        self._spare: list[Any] = []

    @property
    def facts(self) -> KernelFacts:
        """What OpenCL can tell; registers are not in it."""
        import pyopencl as cl

        if not self._spare:
            self._spare.append(cl.Kernel(self._program, self._name))
        device, wanted = self._queue.device, cl.kernel_work_group_info
        ask = self._spare[-1].get_work_group_info
        try:
            private, local = (
                int(ask(what, device)) for what in (wanted.PRIVATE_MEM_SIZE, wanted.LOCAL_MEM_SIZE)
            )
        except cl.Error as error:
            raise DeviceError(str(error)) from None
        return KernelFacts(None, private, local)

    def bind(
        self, grid: tuple[int, int, int], threads: int, arguments: Sequence[LaunchArgument]
    ) -> OpenCLLaunch:
        """Set the arguments of a kernel object of its own."""
        import pyopencl as cl

        kernel = self._spare.pop() if self._spare else cl.Kernel(self._program, self._name)
        for place, argument in enumerate(arguments):
            value: Any = argument.memory if isinstance(argument, OpenCLBuffer) else argument
            kernel.set_arg(place, value)
        size = (grid[0] * threads, grid[1], grid[2])
        launch = OpenCLLaunch(self._queue, kernel, size, (threads, 1, 1), self._spare)
        # A kernel object doesn't keep the memory that it was given, parts of it least of all.
        launch.kept = tuple(arguments)
        return launch


class OpenCLLaunch:
    """A kernel object with its arguments; whoever drops it gives the object back."""

    kept: tuple[LaunchArgument, ...] = ()

    def __init__(
        self,
        queue: Any,
        kernel: Any,
        size: tuple[int, ...],
        block: tuple[int, ...],
        spare: list[Any],
    ) -> None:
        import pyopencl as cl

        self._enqueue = cl.enqueue_nd_range_kernel
        self._what = (queue, kernel, size, block)
        self._spare = spare

    def __call__(self) -> None:
        """Enqueue it."""
        self._enqueue(*self._what)

    def __del__(self) -> None:
        self._spare.append(self._what[1])


class OpenCLDevice(Device):
    """A device of an OpenCL platform."""

    def __init__(self, device: Any) -> None:
        import pyopencl as cl

        self._cl = cl
        self._device = device
        self.target = (_devices().index(device),)
        self._context = cl.Context([device])
        self._is_processor = _is_processor(device)
        self._queue = cl.CommandQueue(
            self._context, properties=cl.command_queue_properties.PROFILING_ENABLE
        )
        self.properties = DeviceProperties(
            backend="opencl",
            name=device.name.strip(),
            arch="cpu" if self._is_processor else device.name.strip(),
            compute_units=device.max_compute_units,
            wave_size=1 if self._is_processor else 32,
            local_memory=device.local_mem_size,
            max_threads=min(device.max_work_group_size, device.max_work_item_sizes[0]),
            clock_mhz=device.max_clock_frequency,
            l2_bytes=device.global_mem_cache_size,
            memory_bytes=device.global_mem_size,
            driver=_version(device),
            compiler=_version(device),
        )

    def compile(self, source: str, macros: Sequence[tuple[str, int]]) -> bytes:
        """Build a program and take its binary."""
        return _build(self._context, self._device, source, macros)

    def load(self, binary: bytes, name: str) -> OpenCLKernel:
        """Load a kernel from a stored binary."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program = self._cl.Program(self._context, [self._device], [binary]).build()
        except self._cl.Error as error:
            raise DeviceError(f"the binary can't be loaded: {error}") from None
        return OpenCLKernel(self._queue, program, name)

    def alloc(self, nbytes: int) -> OpenCLBuffer:
        """Take memory."""
        if nbytes > self._device.max_mem_alloc_size:
            raise OutOfDeviceMemoryError(
                f"{nbytes} bytes asked for, the device gives {self._device.max_mem_alloc_size}"
            )
        try:
            memory = self._cl.Buffer(
                self._context, self._cl.mem_flags.READ_WRITE, size=max(1, nbytes)
            )
        except self._cl.MemoryError as error:
            raise OutOfDeviceMemoryError(str(error)) from None
        return OpenCLBuffer(memory, nbytes)

    def wrap(self, address: int, nbytes: int) -> OpenCLBuffer:
        """Use memory of the host where it lies."""
        memory = self._cl.Buffer(
            self._context,
            self._cl.mem_flags.READ_WRITE | self._cl.mem_flags.USE_HOST_PTR,
            hostbuf=(ctypes.c_ubyte * nbytes).from_address(address),
        )
        return OpenCLBuffer(memory, nbytes)

    def publish(self, buffer: Buffer) -> None:
        """Map the memory, which costs nothing if the device uses it where it lies."""
        flags, dtype = self._cl.map_flags.READ, np.dtype(np.uint8)
        mapped: Any = self._cl.enqueue_map_buffer(
            self._queue, _memory(buffer), flags, 0, (buffer.nbytes,), dtype
        )[0]
        mapped.base.release(self._queue)

    def write(self, buffer: Buffer, data: npt.NDArray[Any]) -> None:
        """Copy to the device."""
        if data.nbytes:
            self._cl.enqueue_copy(self._queue, _memory(buffer), data, is_blocking=True)

    def read(self, buffer: Buffer, out: npt.NDArray[Any]) -> None:
        """Copy from the device."""
        if out.nbytes:
            self._cl.enqueue_copy(self._queue, out, _memory(buffer), is_blocking=True)

    def fill(self, buffer: Buffer, byte: int) -> None:
        """Enqueue a fill."""
        if buffer.nbytes:
            pattern = np.full(1, byte, np.uint8)
            self._cl.enqueue_fill_buffer(self._queue, _memory(buffer), pattern, 0, buffer.nbytes)

    def synchronize(self) -> None:
        """Finish the queue."""
        try:
            self._queue.finish()
        except self._cl.Error as error:
            raise DeviceError(str(error)) from None

    def time_ms(self, work: Callable[[], None]) -> float:
        """Time by markers around the launches; by this process's clock on processors.

        Markers of processors end when they are seen, not when the work before them does.
        """
        self.synchronize()
        if self._is_processor:
            start = time.perf_counter()
            work()
            self.synchronize()
            return 1e3 * (time.perf_counter() - start)
        before = self._cl.enqueue_marker(self._queue)
        work()
        after = self._cl.enqueue_marker(self._queue)
        self.synchronize()
        return float(after.profile.end - before.profile.end) * 1e-6


def _memory(buffer: Buffer) -> Any:
    assert isinstance(buffer, OpenCLBuffer), "memory of another backend"
    return buffer.memory
