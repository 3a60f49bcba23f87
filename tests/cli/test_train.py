"""`foretune train miopen` on a few shapes: the same bundle each time, and one that answers."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from foretune.cli import main
from foretune.miopen.archive import IssueLog, open_archive, read_lines, write_lines
from foretune.miopen.driver import parse_problem_line
from foretune.miopen.keys import format_perf_key

KEY = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F"
FIND_DB, PERF_DB = "gfx942130.HIP.fdb.txt", "gfx942130.db.txt"


def lines_of(path: Path, step: int = 1) -> list[str]:
    lines = read_lines(open_archive(path), IssueLog(str(path)))
    return [text for _, text in islice(lines, 0, None, step)]


@pytest.fixture
def few(miopen_db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def test_the_same_command_gives_the_same_bundle(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundles = []
    for workers in ("1", "2"):
        home = tmp_path / workers / "gfx942"
        train = ["train", "miopen", "--db", str(few), "--arch", "gfx942", "--json"]
        assert main([*train, "--workers", workers, "--out", str(home)]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["bundle_bytes"] == sum(path.stat().st_size for path in home.iterdir())
        bundles.append({path.name: path.read_bytes() for path in home.iterdir()})
    first, second = bundles
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
    models = str(tmp_path / "1")
    assert main(["predict", "--models", models, "--arch", "gfx942", "--json", KEY]) == 0
    assert json.loads(capsys.readouterr().out)["solutions"]
