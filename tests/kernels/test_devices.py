"""Which devices are here, which are not, and why."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

from foretune.cli import main
from foretune.errors import InputError
from foretune.kernels.runtime import cuda, hip, listing, opencl
from foretune.kernels.runtime.device import DeviceError, open_device
from foretune.kernels.runtime.hip import arch_of_bus
from foretune.kernels.runtime.listing import list_devices


def test_every_backend_is_present_or_absent() -> None:
    found = list_devices()
    named = {name.partition(":")[0].replace("cpu", "opencl") for name in found.present}
    assert named | set(found.absent) == {"hip", "cuda", "opencl"}
    assert not named & set(found.absent)
    for name, properties in found.present.items():
        assert open_device(name).properties == properties
    for reason in found.absent.values():
        assert reason
        assert "\n" not in reason


def test_the_default_device_is_the_first_one_listed() -> None:
    present = list_devices().present
    if not present:
        pytest.skip("there is no device here")
    assert open_device().properties == next(iter(present.values()))


def test_the_command_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    found = list_devices()
    assert main(["devices"]) == (0 if found.present else 1)
    text = capsys.readouterr().out
    for name, properties in found.present.items():
        assert any(
            line.startswith(f"{name} ") and properties.name in line for line in text.splitlines()
        )
    for name, reason in found.absent.items():
        assert f"no {name}: {reason}\n" in text


def test_the_command_gives_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = list_devices()
    assert main(["devices", "--json"]) == (0 if found.present else 1)
    answer = json.loads(capsys.readouterr().out)
    assert answer == json.loads(json.dumps(found.to_dict()))
    for device in answer["devices"]:
        assert {"device", "arch", "compute_units", "local_memory"} <= set(device)


def test_a_device_that_cannot_be_opened_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    present = list(list_devices().present)

    def refuse(name: str) -> None:
        raise DeviceError(f"{name} is in exclusive use")

    monkeypatch.setattr(listing, "open_device", refuse)
    found = list_devices()
    assert not found.present
    reasons = [f"can't be opened: {name} is in exclusive use" for name in present]
    assert [found.absent[name] for name in present] == reasons
    monkeypatch.setattr("foretune.cli.devices.list_devices", lambda: found)
    assert main(["devices"]) == 1


@pytest.mark.parametrize(
    ("module", "library", "hint"),
    [
        (cuda, "cuda", r"cuda-bindings is not installed; pip install 'foretune\[cuda\]'"),
        (hip, "hip", "hip-python is not installed; pip install hip-python"),
        (opencl, "pyopencl", r"pyopencl is not installed; pip install 'foretune\[cpu\]'"),
    ],
)
def test_says_which_binding_is_missing(
    module: Any, library: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str) -> Any:
        return None if name.partition(".")[0] == library else real(name)

    monkeypatch.setattr(module, "find_spec", find_spec)
    uncached = getattr(module.why_absent, "__wrapped__", module.why_absent)
    with pytest.raises(InputError, match=hint):
        raise InputError(uncached(), "device")


def test_says_who_may_not_use_an_amd_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class Runtime:
        @staticmethod
        def hipGetDeviceCount() -> tuple[int, int]:  # noqa: N802
            return 100, 0

    monkeypatch.setattr(hip, "_hip", Runtime)
    monkeypatch.setattr(hip, "find_spec", lambda name: name)
    absent: Any = hip.why_absent.__wrapped__
    for exists, allowed, reason in (
        (False, False, "no AMD GPU with a driver"),
        (True, False, "no permission on /dev/kfd; add your user to the groups render and video"),
        (True, True, "sees no device; check rocminfo"),
    ):
        monkeypatch.setattr(Path, "exists", lambda _, answer=exists: answer)
        monkeypatch.setattr(os, "access", lambda *_, answer=allowed: answer)
        assert reason in absent()


@pytest.mark.parametrize(
    ("version", "arch"),
    [(90010, "gfx90a"), (90008, "gfx908"), (90402, "gfx942"), (120000, "gfx1200")],
)
def test_archs_are_read_from_the_kernel_drivers_folder(
    tmp_path: Path, version: int, arch: str
) -> None:
    nodes = [(0, 0, 0), (90006, 0x8300, 0), (version, 0x8300, 1), (90006, 0xC300, 1)]
    for index, (target, location, domain) in enumerate(nodes):
        (tmp_path / str(index)).mkdir()
        (tmp_path / str(index) / "properties").write_text(
            f"cpu_cores_count 0\nlocation_id {location}\ndomain {domain}\n"
            f"gfx_target_version {target}\n"
        )
    assert arch_of_bus("0001:83:00.0", tmp_path) == arch
    with pytest.raises(DeviceError, match=r"no arch for the GPU at 0002:83:00.0"):
        arch_of_bus("0002:83:00.0", tmp_path)
