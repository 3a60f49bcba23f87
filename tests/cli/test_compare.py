"""`foretune compare miopen` on a few shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from foretune.cli import main

NAME = "gfx942130.HIP.fdb.txt"


def test_a_database_is_compared(
    few_databases: Path, miopen_db: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for net in miopen_db.glob("gfx942*.tn.model"):
        few_databases.joinpath(net.name).write_bytes(net.read_bytes())
    compare = ["compare", "miopen", "--find-db", str(few_databases / NAME), "--arch", "gfx942"]
    assert main([*compare, "--part", "unseen", "--db", str(few_databases), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["compute_units"] == 304
    scores = report["scores"]["all"]
    assert {"foretune", "TunaNet", "usual winner", "nearest neighbour"} <= scores.keys()
    assert scores["foretune"]["top1"] > scores["usual winner"]["top1"]
    assert scores["foretune"]["slowdown"] >= 1
    coverage = [row["coverage"] for row in report["accepting"]]
    assert coverage == sorted(coverage)
    assert main(compare) == 0
    out = capsys.readouterr().out
    assert "picker" in out
    assert "foretune's worst picks:" in out


def test_what_was_not_tuned_can_not_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / NAME
    path.write_text("nonsense\n")
    assert main(["compare", "miopen", "--find-db", str(path), "--arch", "gfx942"]) == 2
    assert capsys.readouterr().err.startswith("foretune: error: ")
