"""A slice of a database that is small enough to train on within a test."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from foretune.miopen.archive import open_archive
from foretune.miopen.perf_db import PerfRecord, read_perf_db

# What the slice holds enough problems of.
SOLVERS = (
    "ConvHipImplicitGemmGroupFwdXdlops",
    "ConvHipImplicitGemmGroupBwdXdlops",
    "ConvBinWinogradRxSf3x2",
)


@pytest.fixture(scope="session")
def slice_of_mi300x(miopen_db: Path, tmp_path_factory: pytest.TempPathFactory) -> list[PerfRecord]:
    """A thin slice of the shipped database, three solvers of it."""
    path = tmp_path_factory.mktemp("perf-db") / "slice.db.txt"
    with open_archive(miopen_db / "gfx942130.db.txt.bz2") as file:
        path.write_bytes(b"".join(islice(file, 0, 48_000, 24)))
    records = []
    for record in read_perf_db(path):
        kept = {name: text for name, text in record.params.items() if name in SOLVERS}
        if kept:
            records.append(replace(record, params=kept))
    return records
