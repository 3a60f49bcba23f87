"""Databases that are small enough to train and compare on within a test."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from foretune.miopen.archive import IssueLog, open_archive, read_lines, write_lines
from foretune.miopen.driver import parse_problem_line
from foretune.miopen.keys import format_perf_key

FIND_DB, PERF_DB = "gfx942130.HIP.fdb.txt", "gfx942130.db.txt"


def lines_of(path: Path, step: int = 1) -> list[str]:
    lines = read_lines(open_archive(path), IssueLog(str(path)))
    return [text for _, text in islice(lines, 0, None, step)]


@pytest.fixture
def few_databases(miopen_db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder with every hundredth line of AMD's find-db and its configs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "db"
    folder.mkdir()
    find = lines_of(miopen_db / f"{FIND_DB}.bz2", 100)
    keys = {format_perf_key(parse_problem_line(line.partition("=")[0])[0]) for line in find}
    perf = lines_of(miopen_db / f"{PERF_DB}.bz2")
    write_lines(folder / FIND_DB, find)
    write_lines(folder / PERF_DB, [line for line in perf if line.partition("=")[0] in keys])
    return folder
