"""The notebooks run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from tests.kernels.processor import needs_processor

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def run_notebook(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a notebook's cells in a folder of its own, and give the names that they leave."""
    mpl.use("Agg")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(folder / "cache"))
    path = NOTEBOOKS / name
    names: dict[str, Any] = {}
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert sources
    for source in sources:
        exec(compile(source, str(path), "exec"), names)
    return names


def test_predicted_against_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_notebook("predicted_against_tuned.ipynb", tmp_path, monkeypatch)
    assert set(names["scores"]["arch"]) == {"gfx908", "gfx90a", "gfx942"}


def test_from_a_database_to_a_report(
    miopen_db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIOPEN_DB", os.fspath(miopen_db))
    names = run_notebook("from_database_to_report.ipynb", tmp_path, monkeypatch)
    scores = names["scores"]
    assert scores["foretune, shipped"].slowdown < scores["foretune, hundredth"].slowdown
    assert "MI300X" in names["report"].read_text(encoding="utf-8")
    names["work"].cleanup()


@needs_processor
def test_your_own_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORETUNE_CACHE", os.fspath(tmp_path / "foretune"))
    names = run_notebook("your_own_device.ipynb", tmp_path, monkeypatch)
    assert names["trials"]["problem"].nunique() == 6
    assert "shapes that training never saw" in capsys.readouterr().out
    assert "foretune&#39;s kernels on" in (tmp_path / "report-mine.html").read_text("utf-8")
