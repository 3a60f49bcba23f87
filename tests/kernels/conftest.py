"""Fixtures of the kernel tests: every device that is here."""

from __future__ import annotations

from functools import cache
from importlib import import_module

import pytest

from foretune.kernels.runtime.binaries import BinaryCache
from foretune.kernels.runtime.device import BACKENDS, open_device
from foretune.kernels.runtime.executor import Executor


def _backend_names() -> list[str]:
    modules = {name: import_module(f"foretune.kernels.runtime.{name}") for name in BACKENDS}
    present = [name for name in BACKENDS if modules[name].why_absent() is None]
    return [{"opencl": "cpu"}.get(name, name) for name in present]


@cache
def _executor(name: str) -> Executor:
    return Executor(open_device(name), BinaryCache())


@pytest.fixture(params=_backend_names())
def executor(request: pytest.FixtureRequest) -> Executor:
    """An executor on each device that is here."""
    return _executor(request.param)


def test_there_is_a_device_here() -> None:
    assert _backend_names(), "install the extra cpu: every test of kernels would be left out"
