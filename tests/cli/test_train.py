"""`foretune train miopen` on a few shapes: the same bundle each time, and one that answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretune.cli import main

KEY = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F"


def test_the_same_command_gives_the_same_bundle(
    few_databases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundles = []
    for workers in ("1", "2"):
        home = tmp_path / workers / "gfx942"
        train = ["train", "miopen", "--db", str(few_databases), "--arch", "gfx942", "--json"]
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
