from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest

from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.archive import open_archive
from foretune.miopen.find_db import read_find_db

MOST_LINES = 60_000
DATABASES = Path(__file__).parents[4] / "shared" / "miopen-db"


@dataclass(frozen=True)
class Records:
    """A sample of a find-db: problems and their times."""

    problems: list[ConvProblem]
    times: list[dict[str, float]]


@pytest.fixture(scope="session")
def databases() -> Path:
    if not DATABASES.is_dir():
        pytest.skip("AMD's databases (../shared/miopen-db) are not there")
    return DATABASES


def sample_lines(path: Path, every: int, most: int | None = MOST_LINES) -> list[str]:
    """Each so-manieth of the first lines; unpacking a whole file takes seconds."""
    with open_archive(path) as file:
        return [line.decode() for line in islice(file, 0, most, every)]


def sample_find_db(path: Path, every: int, folder: Path, most: int | None = MOST_LINES) -> Records:
    sample = folder / path.stem
    sample.write_text("".join(sample_lines(path, every, most)))
    records = list(read_find_db(sample))
    return Records(
        [record.problem for record in records],
        [{item.solver: item.time_ms for item in record.items} for record in records],
    )


@pytest.fixture(scope="session")
def mi300x(databases: Path, tmp_path_factory: pytest.TempPathFactory) -> Records:
    # All of it, because the file is sorted, and its first part is harder than the rest.
    folder = tmp_path_factory.mktemp("mi300x")
    return sample_find_db(databases / "gfx942130.HIP.fdb.txt.bz2", 12, folder, None)
