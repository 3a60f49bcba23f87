"""The notebooks run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

NOTEBOOKS = sorted(Path(__file__).parents[1].joinpath("notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    mpl.use("Agg")
    names: dict[str, Any] = {}
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert sources
    for source in sources:
        exec(compile(source, str(path), "exec"), names)
