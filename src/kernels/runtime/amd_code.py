"""What code objects for AMD GPUs tell of their kernels without a GPU: registers, spills, LDS.

The compiler writes it into a note of the ELF file, as MessagePack (LLVM's "User Guide for AMDGPU
Backend", "Code Object Metadata").
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from types import MappingProxyType
from typing import Any

from foretune.kernels.runtime.device import KernelFacts

_NOTE = "AMDGPU"


@dataclass(frozen=True)
class StaticFacts:
    """Facts of a kernel that hold whatever it is launched with.

    Parameters
    ----------
    vector_registers : int
        Of one thread; accumulation registers are counted in where they share a file (gfx90a on).
    accumulation_registers : int
        AGPRs of one thread.
    scalar_registers : int
        Of one wave.
    vector_spills, scalar_spills : int
        Registers that had no room.
    scratch_bytes : int
        Memory of one thread for spills and arrays.
    local_bytes : int
        LDS of a block.
    wave_size : int
        Threads of a wave.
    max_threads : int
        Threads of a block that it was compiled for.
    """

    vector_registers: int
    accumulation_registers: int
    scalar_registers: int
    vector_spills: int
    scalar_spills: int
    scratch_bytes: int
    local_bytes: int
    wave_size: int
    max_threads: int


def static_facts(code_object: bytes) -> dict[str, StaticFacts]:
    """Read the facts of all kernels of a code object, by their names.

    Raises
    ------
    ValueError
        If it is no code object of AMD's.
    """
    return {kernel[".name"]: _facts(kernel) for kernel in _metadata(code_object)["amdhsa.kernels"]}


def kernel_facts(code_object: bytes, name: str) -> KernelFacts:
    """Tell what a kernel of a code object takes; nothing without the extra `tune`."""
    if find_spec("elftools") is None or find_spec("msgpack") is None:
        return KernelFacts()
    facts = static_facts(code_object)[name]
    return KernelFacts(facts.vector_registers, facts.scratch_bytes, facts.local_bytes)


def _metadata(code_object: bytes) -> dict[str, Any]:
    import msgpack
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import NoteSection

    try:
        file = ELFFile(BytesIO(code_object))
        for section in file.iter_sections():
            if isinstance(section, NoteSection):
                for note in section.iter_notes():
                    if note["n_name"] == _NOTE:
                        metadata: dict[str, Any] = msgpack.unpackb(_description(note))
                        return metadata
    except ELFError as error:
        raise ValueError(f"no ELF file: {error}") from None
    raise ValueError("no note of AMD's in the ELF file")


def _description(note: Any) -> bytes:
    content = note["n_descdata"]
    return content if isinstance(content, bytes) else bytes(content, "latin-1")


def _facts(kernel: dict[str, Any]) -> StaticFacts:
    return StaticFacts(
        vector_registers=kernel[".vgpr_count"],
        accumulation_registers=kernel.get(".agpr_count", 0),
        scalar_registers=kernel[".sgpr_count"],
        vector_spills=kernel.get(".vgpr_spill_count", 0),
        scalar_spills=kernel.get(".sgpr_spill_count", 0),
        scratch_bytes=kernel[".private_segment_fixed_size"],
        local_bytes=kernel[".group_segment_fixed_size"],
        wave_size=kernel[".wavefront_size"],
        max_threads=kernel[".max_flat_workgroup_size"],
    )


@dataclass(frozen=True)
class _Simd:
    """Vector registers of one lane, how many are given at a time, and the waves it holds."""

    registers: int
    granule: int
    most_waves: int


#: AMD's CDNA instruction set manuals, "Register pressure in AMD CDNA2 GPUs" (gpuopen.com), and
#: LLVM's AMDGPUBaseInfo.cpp, which agree.
_SIMDS = MappingProxyType(
    {
        "gfx906": _Simd(256, 4, 10),
        "gfx908": _Simd(256, 4, 10),
        "gfx90a": _Simd(512, 8, 8),
        "gfx942": _Simd(512, 8, 8),
    }
)
#: Of a compute unit, but scalar registers, which each SIMD has.
_SIMDS_PER_UNIT, _LDS_BYTES, _LDS_GRANULE, _SCALAR_REGISTERS = 4, 65536, 512, 800
#: Blocks of several waves that a compute unit holds, for want of barriers.
_MOST_BLOCKS = 16


def waves_per_simd(facts: StaticFacts, arch: str) -> float | None:
    """Tell how many waves of a kernel a SIMD holds at a time, on average over those of a unit.

    Vector registers, scalar registers, LDS, barriers and places for waves limit it. None for archs
    whose limits aren't known.

    Examples
    --------
    >>> facts = StaticFacts(128, 0, 40, 0, 0, 0, 16384, 64, 256)
    >>> waves_per_simd(facts, "gfx908"), waves_per_simd(facts, "gfx90a")
    (2.0, 4.0)
    """
    simd = _SIMDS.get(arch)
    if simd is None:
        return None
    by_registers = min(
        simd.most_waves,
        simd.registers // _rounded_up(max(1, facts.vector_registers), simd.granule),
        _SCALAR_REGISTERS // max(1, facts.scalar_registers),
    )
    waves = -(-facts.max_threads // facts.wave_size)
    blocks = _SIMDS_PER_UNIT * by_registers // waves
    if waves > 1:
        blocks = min(blocks, _MOST_BLOCKS)
    if facts.local_bytes:
        blocks = min(blocks, _LDS_BYTES // _rounded_up(facts.local_bytes, _LDS_GRANULE))
    return blocks * waves / _SIMDS_PER_UNIT


def _rounded_up(number: int, granule: int) -> int:
    return -(-number // granule) * granule
