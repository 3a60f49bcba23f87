from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from foretune.errors import InputError
from foretune.miopen.comparison import compare_miopen
from foretune.miopen.config_comparison import compare_configs
from foretune.miopen.config_ranking import TABLE_FILE
from foretune.miopen.config_scores import ConfigScores
from foretune.miopen.config_training import train_configs
from foretune.miopen.perf_db import PerfRecord, write_perf_db
from foretune.predictor.boosting import TreeSettings

pytest.importorskip("lightgbm")

SETTINGS = TreeSettings(rounds=8, leaves=7, feature_fraction=0.3, min_rows=5)
BACKWARD = "ConvHipImplicitGemmGroupBwdXdlops"


@pytest.fixture(scope="module")
def trained(
    slice_of_mi300x: list[PerfRecord],
    miopen_db: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Path, list[ConfigScores]]:
    """Databases with nets, bundles learnt from them, and what their training measured."""
    folder, models = tmp_path_factory.mktemp("db"), tmp_path_factory.mktemp("models")
    write_perf_db(folder / "gfx942130.db.txt", slice_of_mi300x)
    for net in miopen_db.glob("gfx942_*.ktn.model"):
        folder.joinpath(net.name).symlink_to(net)
    metrics = train_configs(folder, "gfx942", models / "gfx942", workers=1, settings=SETTINGS)
    return folder, models, [ConfigScores(**score) for score in metrics["scores"]]


def test_a_bundle_scores_as_its_training_did(
    trained: tuple[Path, Path, list[ConfigScores]],
) -> None:
    folder, models, before = trained
    after = compare_configs(folder, "gfx942", 304, "unseen", models)
    assert {BACKWARD} < {score.solver for score in after}
    assert len(after) == len(before)
    by_name = {(score.solver, score.direction, score.dtype): score for score in before}
    for score in after:
        assert score.net_problems == (score.problems if "Group" in score.solver else 0)
        own, other = (
            asdict(s) for s in (score, by_name[score.solver, score.direction, score.dtype])
        )
        assert own.pop("by_parameter") == pytest.approx(other.pop("by_parameter"), abs=0.05)
        for name, value in own.items():
            # The bundle keeps three decimals of what is usual, which may turn a close call.
            close = isinstance(value, float) and not name.startswith("net")
            assert value == (pytest.approx(other[name], abs=0.05) if close else other[name]), name


def test_parts_are_scored_apart_and_never_what_was_learnt_from(
    trained: tuple[Path, Path, list[ConfigScores]],
    slice_of_mi300x: list[PerfRecord],
    tmp_path: Path,
) -> None:
    _, models, _ = trained
    write_perf_db(tmp_path / "gfx942130.db.txt", slice_of_mi300x)  # nets would only take time
    problems = {}
    for part in ("test", "calibrate", "unseen", "all"):
        scores = compare_configs(tmp_path, "gfx942", 304, part, models)
        problems[part] = sum(score.problems for score in scores)
    assert 0 < problems["test"] < problems["calibrate"]
    assert problems["test"] + problems["calibrate"] == problems["unseen"] == problems["all"]


def test_only_solvers_of_the_release_are_scored(
    trained: tuple[Path, Path, list[ConfigScores]],
    slice_of_mi300x: list[PerfRecord],
    tmp_path: Path,
) -> None:
    _, models, _ = trained
    mlir = [
        replace(record, params={"ConvMlirIgemmBwdXdlops": "1", BACKWARD: record.params[BACKWARD]})
        for record in slice_of_mi300x
        if BACKWARD in record.params
    ]
    write_perf_db(tmp_path / "gfx942130.db.txt", mlir)
    scores = compare_configs(tmp_path, "gfx942", 304, "unseen", models, miopen="3.6")
    assert {score.solver for score in scores} == {BACKWARD}
    with pytest.raises(InputError, match="MIOpen release"):
        compare_configs(tmp_path, "gfx942", 304, "unseen", models, miopen="new")


def test_without_a_perf_db_or_a_ranking_nothing_is_scored(
    trained: tuple[Path, Path, list[ConfigScores]], tmp_path: Path
) -> None:
    folder, models, _ = trained
    assert (models / "gfx942" / TABLE_FILE).exists()
    assert compare_configs(folder, "gfx942", 80, "test", models) == []
    assert compare_configs(folder, "gfx90a", 104, "test", models) == []
    assert compare_configs(folder, "gfx942", 304, "test", tmp_path) == []


@pytest.mark.parametrize("risk", [0, 1, 5, -0.1, float("nan"), "0.05", True, None])
def test_a_risk_that_is_none_is_told(risk: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="between 0 and 1") as caught:
        compare_miopen(tmp_path / "nothing.fdb.txt", "gfx942", risk=risk)
    assert caught.value.where == "risk"
