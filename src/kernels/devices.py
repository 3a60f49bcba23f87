"""What is known of GPUs without having one: sizes and peak rates by arch and compute units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from foretune.errors import InputError

#: Matrix-core operations of one compute unit in one clock, by arch and bytes of an element
#: (AMD's CDNA, CDNA 2 and CDNA 3 architecture white papers).
_FLOPS_PER_CLOCK = MappingProxyType(
    {
        "gfx906": {8: 64, 4: 128, 2: 256, 1: 512},
        "gfx908": {8: 64, 4: 256, 2: 1024, 1: 1024},
        "gfx90a": {8: 256, 4: 256, 2: 1024, 1: 1024},
        "gfx942": {8: 256, 4: 256, 2: 2048, 1: 4096},
        "gfx950": {8: 128, 4: 256, 2: 4096, 1: 8192},
    }
)


@dataclass(frozen=True)
class DeviceFacts:
    """A GPU as its data sheet describes it.

    Parameters
    ----------
    arch : str
        Name that compilers use, for example "gfx90a".
    name : str
        Name that it is sold under.
    compute_units : int
        Compute units of one device as programs see it (one die of an MI250X).
    clock_mhz : int
        Peak engine clock.
    bandwidth_gbs : float
        Peak memory bandwidth in GB/s.
    """

    arch: str
    name: str
    compute_units: int
    clock_mhz: int
    bandwidth_gbs: float

    def peak_flops(self, element_bytes: int) -> float:
        """Peak matrix rate in operations per second for elements of this many bytes.

        Examples
        --------
        >>> round(device_facts("gfx942").peak_flops(2) / 1e12)
        1307
        """
        per_clock = _FLOPS_PER_CLOCK[self.arch][element_bytes]
        return per_clock * self.compute_units * self.clock_mhz * 1e6


#: The first of an arch is its usual one.
KNOWN_DEVICES = (
    DeviceFacts("gfx906", "MI50", 60, 1725, 1024.0),
    DeviceFacts("gfx908", "MI100", 120, 1502, 1228.8),
    DeviceFacts("gfx90a", "MI210", 104, 1700, 1638.4),
    DeviceFacts("gfx90a", "MI250X", 110, 1700, 1638.4),
    DeviceFacts("gfx942", "MI300X", 304, 2100, 5300.0),
    DeviceFacts("gfx942", "MI300A", 228, 2100, 5300.0),
    DeviceFacts("gfx942", "MI308X", 80, 1420, 5300.0),
    DeviceFacts("gfx942", "MI300X partition", 38, 2100, 662.5),
    DeviceFacts("gfx950", "MI355X", 256, 2400, 8000.0),
)


def device_facts(arch: str, compute_units: int | None = None) -> DeviceFacts:
    """Facts of a device; the arch's usual one unless compute units say otherwise.

    A count that no known device has takes the usual device's clock, and its bandwidth unchanged.

    Raises
    ------
    InputError
        If the arch is unknown.

    Examples
    --------
    >>> device_facts("gfx90a", 110).name
    'MI250X'
    >>> device_facts("gfx942", 100).clock_mhz
    2100
    """
    of_arch = [device for device in KNOWN_DEVICES if device.arch == arch]
    if not of_arch:
        known = ", ".join(dict.fromkeys(device.arch for device in KNOWN_DEVICES))
        raise InputError(f"unknown arch {arch!r}; known are {known}", "arch")
    if compute_units is None:
        return of_arch[0]
    for device in of_arch:
        if device.compute_units == compute_units:
            return device
    return replace(
        of_arch[0], name=f"{arch} with {compute_units} units", compute_units=compute_units
    )
