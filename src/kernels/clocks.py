"""How fast a device's clocks run at the moment, as far as its driver tells."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from foretune.kernels.runtime.properties import DeviceProperties

_FIELDS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "power.limit", "temperature.gpu")
_DRM = Path("/sys/class/drm")


def clock_facts(device: DeviceProperties) -> dict[str, Any]:
    """Read clocks, and whatever else decides a device's speed; empty where nothing tells.

    Examples
    --------
    >>> facts = clock_facts(DeviceProperties("opencl", "a processor", "cpu", 2, 1, 0, 1024))
    >>> "load" in facts
    True
    """
    return _READERS["cpu" if device.arch == "cpu" else device.backend]()


def _of_processor() -> dict[str, Any]:
    facts: dict[str, Any] = {"load": os.getloadavg()[0]}
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return facts
    clocks = [float(value) for value in re.findall(r"cpu MHz\s*: ([\d.]+)", text)]
    return {**facts, "clock_mhz": max(clocks)} if clocks else facts


def _of_nvidia() -> dict[str, Any]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    query = [program, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    # Of all GPUs, since CUDA counts them in another order, and leaves out what is hidden from it.
    values = zip(*(line.split(", ") for line in answer.stdout.splitlines()), strict=False)
    return {name: " / ".join(found) for name, found in zip(_FIELDS, values, strict=False)}


def _of_amd() -> dict[str, Any]:
    facts = {}
    for name in ("pp_dpm_sclk", "pp_dpm_mclk"):
        for path in sorted(_DRM.glob(f"card*/device/{name}"))[:1]:
            current = re.search(r"(\d+)Mhz \*", path.read_text())
            if current:
                facts[name] = int(current[1])
    return facts


_READERS: MappingProxyType[str, Callable[[], dict[str, Any]]] = MappingProxyType(
    {"cpu": _of_processor, "cuda": _of_nvidia, "hip": _of_amd, "opencl": dict}
)
