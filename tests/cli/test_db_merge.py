"""`foretune db merge`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretune.cli import main

KEY = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F"
GEMM = "miopenConvolutionFwdAlgoGEMM"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = [tmp_path / "a.ufdb.txt", tmp_path / "b.ufdb.txt"]
    paths[0].write_text(f"{KEY}=a:0.5,0,{GEMM}\n")
    paths[1].write_text(f"{KEY}=a:0.25,0,{GEMM};b:1,0,{GEMM}\nnonsense\n")
    return [str(path) for path in paths]


def test_databases_are_merged(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.ufdb.txt"
    assert main(["db", "merge", *files, "-o", str(out)]) == 0
    text = capsys.readouterr().out
    assert f"{out}: find-db of 2 files, 1 problems, 2 entries" in text
    assert "1 entries differed between the files\n" in text
    assert f"1 issue:\n  {files[1]}, line 2: no '='" in text
    assert out.read_text() == f"{KEY}=a:0.25,0,{GEMM};b:1,0,{GEMM}\n"
    assert main(["db", "merge", "--out", str(out), *files, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["items"], report["conflicts"], len(report["issues"])) == (2, 1, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["merge", "-o", "x"], "name the databases"),
        (["merge"], "name the databases"),
        (["merge", "a.ufdb.txt"], "-o OUT"),
        (["merge", "a.ufdb.txt", "-o", "x"], "there is no such file"),
        (["a.ufdb.txt", "b.ufdb.txt"], "expected one database"),
        (["a.ufdb.txt", "-o", "x"], "only"),
    ],
)
def test_a_wrong_command_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["db", *words]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_strict_stops_before_anything_is_written(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.ufdb.txt"
    assert main(["db", "merge", *files, "-o", str(out), "--strict"]) == 2
    assert "line 2" in capsys.readouterr().err
    assert not out.exists()


def test_a_file_named_merge_is_described(
    files: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(files[0]).rename("merge")
    assert main(["db", "merge"]) == 0
    assert "1 problems" in capsys.readouterr().out
