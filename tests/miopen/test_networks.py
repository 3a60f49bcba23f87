"""Networks as files of driver lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretune.errors import InputError
from foretune.miopen.networks import TYPES, in_types, read_networks, suite_networks

LINE = "./bin/MIOpenDriver conv -n 8 -c 64 -H 28 -W 28 -k 64 -y 3 -x 3 -p 1 -q 1 -F {}\n"


def test_convolutions_are_counted_and_other_operations_left_out(tmp_path: Path) -> None:
    (tmp_path / "net.txt").write_text(LINE.format(1) * 2 + LINE.format(2) + "MIOpenDriver pool\n")
    (tmp_path / "pooling.txt").write_text("MIOpenDriver pool -n 8\n\n")
    networks = read_networks(tmp_path)
    assert list(networks) == ["net"]
    counts = {problem.direction: count for problem, count in networks["net"].items()}
    assert counts == {"F": 2, "B": 1}


def test_each_layer_is_taken_in_each_type(tmp_path: Path) -> None:
    (tmp_path / "net.txt").write_text(LINE.format(1) * 2)
    typed = in_types(read_networks(tmp_path))["net"]
    assert {(p.dtype, p.weight_dtype, p.out_dtype) for p in typed} == {(t, t, t) for t in TYPES}
    assert set(typed.values()) == {2}


def test_a_folder_without_a_network_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="MIOpenDriver lines"):
        read_networks(tmp_path)
    (tmp_path / "net.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"net\.txt: can't be read"):
        read_networks(tmp_path)


def test_networks_come_along() -> None:
    assert all(networks.total() > 100 for networks in suite_networks().values())
