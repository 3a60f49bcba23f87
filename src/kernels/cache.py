"""Clearing a device's caches, so that no candidate profits from the one before it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from foretune.kernels.runtime.device import Buffer, Device, OutOfDeviceMemoryError
from foretune.kernels.runtime.properties import DeviceProperties

_CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
#: Of some GPUs the driver names a cache below the last one.
_LEAST_GPU_BYTES = 64 << 20


class CacheCleaner:
    """Fills more memory than the caches hold.

    Parameters
    ----------
    device : Device
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        size = cleaning_bytes(device.properties)
        self._buffer: Buffer | None = None
        # OpenCL's fills are twenty times slower than the processor's own.
        self._array = np.zeros(size if device.properties.arch == "cpu" else 0, np.uint8)
        if not self._array.size:
            try:
                self._buffer = device.alloc(size)
            except OutOfDeviceMemoryError:  # a problem that leaves no room fills the caches itself
                return

    def clean(self) -> None:
        """Fill; on a GPU this is only started."""
        if self._buffer is not None:
            self._device.fill(self._buffer, 0)
        else:
            self._array.fill(1)

    def close(self) -> None:
        """Give the memory back."""
        if self._buffer is not None:
            self._buffer.free()


def cleaning_bytes(device: DeviceProperties, caches: Path = _CPU_CACHES) -> int:
    """Memory whose filling leaves nothing else in the caches.

    Parameters
    ----------
    device : DeviceProperties
    caches : Path, optional
        Where the system describes a processor's caches.

    Examples
    --------
    >>> h200 = DeviceProperties("cuda", "H200", "sm_90", 132, 32, 49152, 1024, l2_bytes=60 << 20)
    >>> cleaning_bytes(h200) >> 20
    120
    """
    if device.arch != "cpu":
        return max(2 * device.l2_bytes, _LEAST_GPU_BYTES)
    sizes = [device.l2_bytes]
    for path in caches.glob("index*/size"):
        text = path.read_text().strip()
        if text[-1:] == "K" and text[:-1].isdecimal():
            sizes.append(int(text[:-1]) << 10)
    # A quarter more is enough, and twice as much would take longer than most kernels.
    return max(sizes) * 5 // 4
