"""The AMD GPU of this machine, as the kernel driver describes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretune.errors import InputError

_TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")


@dataclass(frozen=True)
class Gpu:
    """What `find_gpu` found.

    Parameters
    ----------
    arch : str
        For example "gfx90a".
    compute_units : int
        Of one device, or of one partition of it.
    """

    arch: str
    compute_units: int


def find_gpu(topology: Path = _TOPOLOGY) -> Gpu | None:
    """Find this machine's AMD GPU.

    It reads what the kernel driver publishes. Asking the HIP runtime would take longer than the
    answer that is wanted, and needs ROCm.

    Parameters
    ----------
    topology : Path, optional
        The driver's folder of nodes.

    Returns
    -------
    Gpu or None
        None if there is none that this process may use.

    Raises
    ------
    InputError
        If there are several, and they are not alike.

    Examples
    --------
    >>> find_gpu(Path("no such folder")) is None
    True
    """
    found = {gpu for path in sorted(topology.glob("*/properties")) if (gpu := _read(path))}
    if len(found) > 1:
        names = ", ".join(
            f"{gpu.arch} with {gpu.compute_units} units"
            for gpu in sorted(found, key=lambda gpu: (gpu.arch, gpu.compute_units))
        )
        raise InputError(
            f"this machine has GPUs that differ ({names}); name one by --arch and --cu"
        )
    return found.pop() if found else None


def _read(path: Path) -> Gpu | None:
    try:
        words = path.read_text().split()
        values = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        version = values["gfx_target_version"]
        units = values["simd_count"] // values["simd_per_cu"]
    # A GPU that was not given to this container can't be read; a CPU has no compute units.
    except (OSError, ValueError, KeyError, ZeroDivisionError):
        return None
    if not version or not units:
        return None
    return Gpu(f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}", units)
