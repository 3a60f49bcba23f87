"""What `--report` and `--networks` refuse before any work is done."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from foretune.cli import main

COMPARE = "compare miopen --arch gfx942 --find-db gfx942130.HIP.fdb.txt".split()


@pytest.mark.parametrize("family", ["miopen", "kernels"])
def test_a_report_needs_a_folder(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_kernels = "compare kernels --arch cpu --data mine.parquet".split()
    compare = COMPARE if family == "miopen" else of_kernels
    report = tmp_path / "nowhere" / "report.html"
    assert main([*compare, "--report", str(report)]) == 2
    assert f"{report.parent}: there is no such folder" in capsys.readouterr().err


def test_a_report_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("foretune.predictor.report")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main([*COMPARE, "--report", str(tmp_path / "report.html")]) == 2
    assert "pip install 'foretune[report]'" in capsys.readouterr().err


def test_networks_are_for_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPARE, "--networks", "workloads"]) == 2
    assert "give --report FILE.html" in capsys.readouterr().err
