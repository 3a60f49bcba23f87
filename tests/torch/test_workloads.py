"""Networks ask for what MIOpen's log of them says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

from foretune.miopen.sources import read_source
from foretune.torch import capture

from ..networks import plain, resnet50


@pytest.mark.parametrize(
    ("name", "build", "shape"),
    [
        ("alexnet", plain.build_alexnet, (512, 3, 227, 227)),
        ("vgg16", plain.build_vgg16, (128, 3, 224, 224)),
        ("resnet50", lambda: resnet50.build((3, 4, 6, 3), True, True), (128, 3, 230, 230)),
        ("resnet152", lambda: resnet50.build((3, 8, 36, 3), True, True), (64, 3, 230, 230)),
    ],
)
def test_a_network_asks_for_what_was_logged(
    name: str, build: Callable[[], nn.Module], shape: tuple[int, ...], workloads: Path
) -> None:
    logged = read_source(workloads / f"{name}.txt")
    assert not logged.errors
    assert set(capture(build(), shape)) == set(logged.counts)
