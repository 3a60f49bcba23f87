"""A bundle whose files belong to another is refused, however alike they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from foretune.errors import InputError
from foretune.miopen.config_ranking import ConfigRanking
from foretune.miopen.predictor import shipped_models
from foretune.predictor.bundle import RankingBundle
from foretune.predictor.forest import load_forests, save_forests
from foretune.predictor.manifest import MANIFEST_FILE, checksums, expected_checksums


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Give a bundle of our own whose manifest states what it holds."""
    folder = tmp_path / "gfx942"
    shutil.copytree(shipped_models() / "gfx942", folder)
    write_manifest(folder, checksums(folder))
    return folder


def write_manifest(folder: Path, files: object) -> None:
    content = json.loads((folder / MANIFEST_FILE).read_text())
    (folder / MANIFEST_FILE).write_text(json.dumps({**content, "files": files}))


def test_a_sound_bundle_is_taken(bundle: Path) -> None:
    loaded = RankingBundle(bundle)
    assert [loaded.ranking(direction) for direction in loaded.directions]
    assert loaded.calibration
    assert ConfigRanking(bundle).models
    assert {"F.forests", "model.json", "calibration.json", "configs.json"} <= set(
        expected_checksums(bundle)
    )


def test_forests_with_the_same_counts_are_told_apart(bundle: Path) -> None:
    forests = dict(load_forests(bundle / "F.forests"))
    forests["judge"].leaves = forests["judge"].leaves[::-1].copy()
    save_forests(bundle / "F.forests", forests)
    loaded = RankingBundle(bundle)
    assert loaded.ranking("B")
    with pytest.raises(InputError, match="not the file that belongs here") as caught:
        loaded.ranking("F")
    assert "F.forests" in caught.value.where


@pytest.mark.parametrize("name", ["model.json", "calibration.json", "feature_spec.json"])
def test_other_json_is_told(bundle: Path, name: str) -> None:
    text = (bundle / name).read_text()
    (bundle / name).write_text(text.replace("\n", " ", 1))
    with pytest.raises(InputError, match="not the file that belongs here") as caught:
        RankingBundle(bundle).calibration  # noqa: B018
    assert name in caught.value.where


@pytest.mark.parametrize("name", ["configs.json", "configs.forests"])
def test_other_configs_are_told(bundle: Path, name: str) -> None:
    write_manifest(bundle, {**checksums(bundle), name: "00000000"})
    with pytest.raises(InputError, match="not the file that belongs here") as caught:
        ConfigRanking(bundle)
    assert name in caught.value.where


@pytest.mark.parametrize("content", ["", "[]", '{"files": 5}', '{"files": {"a": 1}}'])
def test_a_damaged_manifest_is_told(bundle: Path, content: str) -> None:
    (bundle / MANIFEST_FILE).write_text(content)
    with pytest.raises(InputError, match=r"manifest\.json"):
        RankingBundle(bundle)


def test_every_shipped_file_is_as_its_manifest_says() -> None:
    folders = sorted(folder for folder in shipped_models().glob("gfx*") if folder.is_dir())
    assert len(folders) == 3
    for folder in folders:
        assert expected_checksums(folder) == checksums(folder)
