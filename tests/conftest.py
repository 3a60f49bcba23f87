"""Fixtures that several tests share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from foretune.miopen.archive import open_archive

if "PYTEST_XDIST_WORKER" in os.environ:
    # Threads of several processes that wait for each other in loops would stop them all.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session")
def miopen_db() -> Path:
    """Folder of AMD's shipped databases."""
    folder = SHARED / "miopen-db"
    if not folder.is_dir():
        pytest.skip("AMD's databases are not beside this checkout (../shared/miopen-db)")
    return folder


@pytest.fixture(scope="session")
def workloads() -> Path:
    """Folder of driver lines of well-known networks."""
    folder = SHARED / "workloads"
    if not folder.is_dir():
        pytest.skip("the workloads are not beside this checkout (../shared/workloads)")
    return folder


@pytest.fixture(scope="session")
def plain_database(
    miopen_db: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Path of a shipped database by its installed name, decompressed once a session."""
    folder = tmp_path_factory.mktemp("miopen-db")

    @cache
    def decompress(name: str) -> Path:
        path = folder / name
        with open_archive(miopen_db / f"{name}.bz2") as source, path.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        return path

    return decompress
