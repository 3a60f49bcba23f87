"""What is known of a device that kernels run on."""

from __future__ import annotations

from dataclasses import dataclass

from foretune.kernels.devices import device_facts


@dataclass(frozen=True)
class DeviceProperties:
    """Facts of a device that decide what is applicable, and that learning uses.

    Parameters
    ----------
    backend : {'hip', 'cuda', 'opencl'}
    name : str
        As its driver calls it, such as "NVIDIA H200".
    arch : str
        "gfx90a", "sm_90", or "cpu" for OpenCL on a processor.
    compute_units : int
        Compute units, multiprocessors, or processor cores.
    wave_size : int
        Threads that run in lock step: 64 on AMD's CDNA, 32 on NVIDIA, 1 on a processor.
    local_memory : int
        Bytes of LDS or shared memory that one block may use.
    max_threads : int
        Threads of a block at most.
    clock_mhz : int
        Peak clock; 0 where the driver doesn't say.
    bandwidth_gbs : float
        Peak memory bandwidth in GB/s; 0 where the driver doesn't say.
    l2_bytes : int
        Last cache that all compute units share; 0 where the driver doesn't say.
    memory_bytes : int
        Device memory.
    dynamic_local_memory : int
        Bytes of it that one block may use by DYNAMIC_LOCAL (prelude.h); 0 where it's the same.
    driver : str
        Version of the driver or run-time.
    compiler : str
        Name and version of what compiles; binaries are kept apart by it.
    """

    backend: str
    name: str
    arch: str
    compute_units: int
    wave_size: int
    local_memory: int
    max_threads: int
    clock_mhz: int = 0
    bandwidth_gbs: float = 0.0
    l2_bytes: int = 0
    memory_bytes: int = 0
    dynamic_local_memory: int = 0
    driver: str = ""
    compiler: str = ""


def amd_properties(arch: str, compute_units: int | None = None) -> DeviceProperties:
    """Tell the properties of an AMD GPU that needn't be here, from what is known of its kind.

    Raises
    ------
    InputError
        If the arch is unknown.

    Examples
    --------
    >>> device = amd_properties("gfx90a")
    >>> device.name, device.compute_units, device.local_memory
    ('MI210', 104, 65536)
    """
    facts = device_facts(arch, compute_units)
    return DeviceProperties(
        backend="hip",
        name=facts.name,
        arch=arch,
        compute_units=facts.compute_units,
        wave_size=64,
        local_memory=65536,
        max_threads=1024,
        clock_mhz=facts.clock_mhz,
        bandwidth_gbs=facts.bandwidth_gbs,
    )
