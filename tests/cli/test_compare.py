"""`foretune compare miopen` on a few shapes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from foretune.cli import main
from foretune.miopen.config_training import train_configs
from foretune.miopen.predictor import shipped_models
from foretune.predictor.boosting import TreeSettings

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


def test_configs_are_compared(
    few_databases: Path, miopen_db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = tmp_path / "models"
    shutil.copytree(shipped_models() / "gfx942", models / "gfx942")
    (models / "gfx942" / "manifest.json").unlink()
    settings = TreeSettings(rounds=3, leaves=4, feature_fraction=0.3, min_rows=5)
    train_configs(few_databases, "gfx942", models / "gfx942", workers=1, settings=settings)
    for net in miopen_db.glob("gfx942*.ktn.model"):
        few_databases.joinpath(net.name).symlink_to(net)
    compare = ["compare", "miopen", "--find-db", str(few_databases / NAME), "--arch", "gfx942"]
    compare += ["--db", str(few_databases), "--models", str(models), "--part", "all"]
    assert main([*compare, "--json"]) == 0
    configs = json.loads(capsys.readouterr().out)["configs"]
    nets = [score for score in configs if score["net_problems"]]
    assert {score["direction"] for score in nets} == {"F", "B", "W"}
    assert len(nets) < len(configs)
    for score in configs:
        assert 0 <= score["top_1"] <= score["top_5"] <= score["top_10"] <= 1
        assert (score["net_top_1"] is None) == (score not in nets)
    assert main(compare) == 0
    table = capsys.readouterr().out.partition("tuning parameters (shapes that training never saw)")
    assert "net parameters" in table[2]
    for score in configs:
        assert f"{score['solver']} {score['direction']}" in table[2]


def test_what_was_not_tuned_can_not_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / NAME
    path.write_text("nonsense\n")
    assert main(["compare", "miopen", "--find-db", str(path), "--arch", "gfx942"]) == 2
    assert capsys.readouterr().err.startswith("foretune: error: ")


def test_a_database_of_another_arch_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gfx90a68.HIP.fdb.txt"
    path.write_text("nonsense\n")
    assert main(["compare", "miopen", "--find-db", str(path), "--arch", "gfx942"]) == 2
    assert "its name says gfx90a, not gfx942" in capsys.readouterr().err
