"""Which devices are here, and why others are not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from foretune.kernels.runtime.device import BACKENDS, DeviceError, open_device
from foretune.kernels.runtime.properties import DeviceProperties


@dataclass(frozen=True)
class DeviceListing:
    """Devices that are here by the names that open them, and backends that aren't.

    Parameters
    ----------
    present : dict
        Name -> properties, in the order in which a default device is looked for.
    absent : dict
        Backend or device -> why in one line, and how to get it.

    Examples
    --------
    >>> listing = list_devices()
    >>> listing.present["cpu"].backend
    'opencl'
    """

    present: dict[str, DeviceProperties]
    absent: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "devices": [
                {"device": name, **asdict(properties)} for name, properties in self.present.items()
            ],
            "absent": [{"device": name, "reason": reason} for name, reason in self.absent.items()],
        }


def list_devices() -> DeviceListing:
    """Open every device that is here, and ask the backends of others why they are not."""
    listing = DeviceListing({}, {})
    for backend in BACKENDS:
        module = import_module(f"foretune.kernels.runtime.{backend}")
        reason = module.why_absent()
        if reason is not None:
            listing.absent[backend] = reason
            continue
        for name in _names(backend, module):
            try:
                listing.present[name] = open_device(name).properties
            except DeviceError as error:
                listing.absent[name] = f"can't be opened: {error}"
    return listing


def _names(backend: str, module: Any) -> Iterator[str]:
    found = module.count()
    processors = module.count_processors() if backend == "opencl" else 0
    # The processors of OpenCL come last, and have a name of their own.
    for index in range(found - processors):
        yield f"{backend}:{index}"
    for index in range(processors):
        yield f"cpu:{index}" if index else "cpu"
