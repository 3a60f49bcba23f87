from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.devices import device_facts
from foretune.miopen.config_ranking import (
    FOREST_FILE,
    FORMAT_VERSION,
    TABLE_FILE,
    ConfigRanking,
    model_name,
)
from foretune.predictor.features.conv import FEATURE_NAMES, FEATURE_VERSION, feature_row
from foretune.predictor.forest import Forest, save_forests

SOLVER = "ConvAsm3x3U"
CONFIGS = ["0,8,7", "0,8,1", "9,2,1"]


def batch_forest() -> Forest:
    """Two outputs: the first is high for a batch of more than 16, the second is low then."""
    counts = np.zeros(len(FEATURE_NAMES), np.intp)
    batch = FEATURE_NAMES.index("batch")
    counts[batch] = 1
    return Forest(
        threshold_counts=counts,
        thresholds=np.array([16], np.float32),
        node_features=np.array([batch, batch]),
        node_bins=np.array([0, 0]),
        node_left_leaves=np.array([1, 1]),
        tree_leaves=np.array([2, 2]),
        leaves=np.array([-1, 1, 1, -1], np.float32),
        output_trees=np.array([1, 1]),
        bias=np.zeros(2),
    )


def table(**changes: Any) -> dict[str, Any]:
    model = {
        "configs": CONFIGS,
        # Output 2 is none: the last config has only what is usual.
        "outputs": ["0 1 2", "2 2 2"],
        "usual": {
            "FP32": {"configs": "0 1 2", "log_share": "-1.0 -1.0 -1.5"},
            "FP16": {"configs": "1 2", "log_share": "-0.7 -0.7"},
        },
    }
    return {
        "format_version": FORMAT_VERSION,
        "feature_version": FEATURE_VERSION,
        "models": {model_name(SOLVER, "F"): model | changes},
    }


def write(folder: Path, content: dict[str, Any]) -> Path:
    (folder / TABLE_FILE).write_text(json.dumps(content))
    save_forests(folder / FOREST_FILE, {model_name(SOLVER, "F"): batch_forest()})
    return folder


def problem(batch: int, dtype: str = "FP32", direction: str = "F") -> ConvProblem:
    return ConvProblem(direction, batch, 64, (28, 28), 64, (3, 3), padding=(1, 1), dtype=dtype)


def row(of: ConvProblem) -> np.ndarray[Any, np.dtype[np.float32]]:
    return feature_row(of, device_facts("gfx90a"))


@pytest.mark.parametrize(
    ("batch", "dtype", "expected", "scores"),
    [
        (32, "FP32", ["0,8,7", "9,2,1", "0,8,1"], [0.0, -1.5, -2.0]),
        (8, "FP32", ["0,8,1", "9,2,1", "0,8,7"], [0.0, -1.5, -2.0]),
        (32, "FP16", ["9,2,1", "0,8,1"], [-0.7, -1.7]),
    ],
)
def test_scores_are_sums_over_values(
    batch: int, dtype: str, expected: list[str], scores: list[float], tmp_path: Path
) -> None:
    ranking = ConfigRanking(write(tmp_path, table()))
    asked = problem(batch, dtype)
    ranked = ranking.rank(SOLVER, asked, row(asked))
    assert [config for config, _ in ranked] == expected
    shares = np.exp(scores) / np.exp(scores).sum()
    assert [share for _, share in ranked] == pytest.approx(shares)
    assert ranking.best(SOLVER, asked, row(asked)) == expected[0]


@pytest.mark.parametrize(
    ("solver", "asked"),
    [
        (SOLVER, problem(8, "BF16")),
        (SOLVER, problem(8, direction="B")),
        ("ConvAsm1x1U", problem(8)),
    ],
)
def test_what_was_never_tuned_has_no_config(
    solver: str, asked: ConvProblem, tmp_path: Path
) -> None:
    ranking = ConfigRanking(write(tmp_path, table()))
    assert ranking.models == ("ConvAsm3x3U F",)
    assert ranking.rank(solver, asked, row(asked)) == []
    assert ranking.best(solver, asked, row(asked)) is None


@pytest.mark.parametrize("key", ["format_version", "feature_version"])
def test_another_version_is_refused(key: str, tmp_path: Path) -> None:
    write(tmp_path, table() | {key: 0})
    with pytest.raises(InputError, match="versions are"):
        ConfigRanking(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"outputs": ["0 1 3"]},
        {"outputs": ["0 1"]},
        {"outputs": ["-1 0 1"]},
        {"outputs": ["0 1 x"]},
        {"outputs": [[0, 1, 2]]},
        {"configs": CONFIGS[:2], "outputs": ["0 1"]},
        {"usual": {"FP32": {"configs": "0 1", "log_share": "-1.0"}}},
        {"usual": {"FP32": {"configs": "", "log_share": ""}}},
        {"usual": {"FP32": {"configs": "0"}}},
    ],
)
def test_a_table_that_does_not_fit_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    ranking = ConfigRanking(write(tmp_path, table(**changes)))
    asked = problem(8)
    with pytest.raises(InputError, match="ConvAsm3x3U F is damaged"):
        ranking.best(SOLVER, asked, row(asked))


def test_damaged_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"configs\.json: can't be read"):
        ConfigRanking(tmp_path)
    for text in ("{", "[]"):
        (tmp_path / TABLE_FILE).write_text(text)
        with pytest.raises(InputError, match=r"configs\.json"):
            ConfigRanking(tmp_path)
    (tmp_path / TABLE_FILE).write_text(json.dumps(table() | {"models": 5}))
    with pytest.raises(InputError, match="no models"):
        ConfigRanking(tmp_path)
    (tmp_path / TABLE_FILE).write_text(json.dumps(table()))
    with pytest.raises(InputError, match=r"configs\.forests"):
        ConfigRanking(tmp_path)
