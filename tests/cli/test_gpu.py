"""The GPU is found in what the kernel driver publishes."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretune.cli.gpu import Gpu, find_gpu
from foretune.errors import InputError

CPU = "cpu_cores_count 96\nsimd_count 0\ngfx_target_version 0\n"


def node(folder: Path, number: int, text: str) -> None:
    path = folder / f"{number}" / "properties"
    path.parent.mkdir()
    path.write_text(text)


def gpu(version: int, simds: int) -> str:
    return f"cpu_cores_count 0\nsimd_count {simds}\nsimd_per_cu 4\ngfx_target_version {version}\n"


@pytest.mark.parametrize(
    ("version", "simds", "expected"),
    [
        (90402, 1216, Gpu("gfx942", 304)),
        (90402, 152, Gpu("gfx942", 38)),
        (90010, 416, Gpu("gfx90a", 104)),
        (90008, 480, Gpu("gfx908", 120)),
        (110001, 120, Gpu("gfx1101", 30)),
    ],
)
def test_a_gpu_is_read(tmp_path: Path, version: int, simds: int, expected: Gpu) -> None:
    node(tmp_path, 0, CPU)
    node(tmp_path, 1, gpu(version, simds))
    node(tmp_path, 2, gpu(version, simds))
    assert find_gpu(tmp_path) == expected


def test_what_is_no_gpu_is_passed_over(tmp_path: Path) -> None:
    assert find_gpu(tmp_path) is None
    node(tmp_path, 0, CPU)
    node(tmp_path, 1, "")
    node(tmp_path, 2, "simd_count many simd_per_cu 4 gfx_target_version 90402")
    node(tmp_path, 3, "odd number of words")
    (tmp_path / "4" / "properties").mkdir(parents=True)
    assert find_gpu(tmp_path) is None


def test_unlike_gpus_have_to_be_named(tmp_path: Path) -> None:
    node(tmp_path, 1, gpu(90010, 416))
    node(tmp_path, 2, gpu(90010, 440))
    with pytest.raises(InputError, match=r"104 units, gfx90a with 110 units.*--arch"):
        find_gpu(tmp_path)
