"""The verbs that read databases."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from foretune.cli import main

FIND = """\
64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F=\
fft:0.3,128,miopenConvolutionFwdAlgoFFT;GemmFwd1x1_0_1:0,0,miopenConvolutionFwdAlgoGEMM
64-28-28-1x1-128-28-28-32-0x0-1x1-1x1-0-NHWC-NHWC-NHWC-FP32-B=\
ConvAsm1x1U:0.1,0,miopenConvolutionBwdDataAlgoDirect
nonsense
"""
PERF = "2x64x28x28x1x1x1x1x128x32x0x0x0x1x1x0x1x1x0x0x1xNHWCxFP32xB=ConvAsm1x1U:1,8,1,16,1,2,2,2\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gfx90a68.HIP.fdb.txt").write_text(FIND)
    (tmp_path / "gfx90a68.db.txt").write_text(PERF)
    return tmp_path


def test_a_database_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(folder / "gfx90a68.HIP.fdb.txt")
    assert main(["db", path]) == 0
    out = capsys.readouterr().out
    assert "3 lines, 2 problems (0 grouped), 3 items" in out
    assert "1 x time is not above zero" in out
    assert f"1 issue:\n  {path}, line 3: " in out
    assert out.split("solver ")[-1].split()[:2] == ["items", "wins"]
    assert main(["db", path, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["problems"], summary["winners"]) == (2, {"fft": 1, "ConvAsm1x1U": 1})
    assert main(["db", path, "--strict"]) == 2
    out, error = capsys.readouterr()
    assert not out
    assert f"{path}, line 3" in error
    assert main(["db", str(folder / "gfx90a68.db.txt")]) == 0
    assert "wins" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["a.fdb.txt", "a.db.txt", "a.db", "a"])
@pytest.mark.parametrize(
    "content", [b"# a text\nof others", b"\xff\xfe", b"SQLite format 3\0", b"a=b"]
)
def test_what_is_no_database_is_shown_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert main(["db", str(path)]) == 2
    assert "0 problems" in capsys.readouterr().out
    assert main(["db", str(path), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["issues"]


def test_a_dataset_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "all.parquet"
    assert main(["dataset", str(folder), "--out", str(path), "--arch", "gfx90a"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1].split() == ["gfx90a", "104", "2", "2", "1", "2"]
    assert "2 issues:" in out
    table = pd.read_parquet(path)
    assert table["solver"].tolist() == ["fft", "ConvAsm1x1U"]
    assert table["config"].tolist()[1] == "1,8,1,16,1,2,2,2"
    before = path.read_bytes()
    assert main(["dataset", str(folder), "--out", str(path), "--strict"]) == 2
    assert "line 1" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_folder_without_databases_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "a.parquet")
    assert main(["dataset", str(tmp_path), "--out", out, "--arch", "gfx908"]) == 2
    assert "no find-db of gfx908 here" in capsys.readouterr().err
    train = ["train", "miopen", "--db", str(tmp_path), "--arch", "gfx908", "--out", out]
    assert main(train) == 2
    assert "no find-db of gfx908 here" in capsys.readouterr().err
