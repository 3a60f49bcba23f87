"""What code objects for AMD GPUs tell of their kernels without a GPU: registers, spills, LDS.

The compiler writes it into a note of the ELF file, as MessagePack (LLVM's "User Guide for AMDGPU
Backend", "Code Object Metadata").
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
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
