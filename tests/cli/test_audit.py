"""`foretune audit`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from foretune.cli import main

KEY = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F"
BIASED = KEY.replace("-0-NCHW", "-1-NCHW")
GEMM = "miopenConvolutionFwdAlgoGEMM"
NAME = "gfx942130.HIP.3_6_0_.ufdb.txt"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / NAME
    path.write_text(
        f"{KEY}=GemmFwd1x1_0_1:0,0,{GEMM};Mystery:0.00001,0,{GEMM}\n"
        f"{BIASED}=GemmFwd1x1_0_1:0.1,-1,{GEMM}\n"
        "nonsense\n"
    )
    return path


def test_findings_are_shown(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"{path}: gfx942 with 304 compute units, for MIOpen 3.6.0" in out
    assert "2 problems, 3 entries, 4 findings" in out
    for reason in ("time", "roofline", "workspace", "unknown"):
        assert f"1 x {reason}: " in out
    assert f"1 issue:\n  {path}, line 3: no '='" in out
    assert main(["audit", str(path), "--reason", "time", "--reason", "slow", "--top", "0"]) == 0
    out = capsys.readouterr().out
    assert "1 findings" in out
    assert KEY not in out


def test_findings_are_given_as_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["counts"] == {"time": 1, "roofline": 1, "workspace": 1, "unknown": 1}
    first = report["findings"][0]
    assert (first["key"], first["solver"], first["line"]) == (KEY, "GemmFwd1x1_0_1", 1)
    assert first["better"] not in (None, "GemmFwd1x1_0_1")


def test_a_script_asks_the_driver_once_for_each_problem(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run with a driver of our own, which writes down what it is asked."""
    script, asked = tmp_path / "again.sh", tmp_path / "asked.txt"
    assert main(["audit", str(path), "--script", str(script)]) == 0
    assert f"{script}: measures 2 problems again" in capsys.readouterr().out
    driver = tmp_path / "driver"
    driver.write_text(
        f'#!/bin/sh\necho "$MIOPEN_FIND_MODE $MIOPEN_FIND_ENFORCE $*" >> "{asked}"\nexit 3\n'
    )
    driver.chmod(0o755)
    environment = {**os.environ, "MIOPEN_DRIVER": str(driver), "MIOPEN_FIND_ENFORCE": "4"}
    assert subprocess.run([str(script)], env=environment, check=False).returncode == 1
    (line,) = asked.read_text().splitlines()
    assert line == (
        "NORMAL 4 convfp16 -n 32 -c 64 -H 56 -W 56 -k 128 -y 1 -x 1 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 "
        "-m conv -g 1 -F 1 -t 1 -i 1 -V 0"
    )
    assert f"{BIASED}\n" in script.read_text()
    assert "# not measured: the driver has no flag for a bias" in script.read_text()


def test_a_clean_database_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gfx942130.HIP.fdb.txt"
    path.write_text(f"{KEY}=GemmFwd1x1_0_1:0.05,0,{GEMM}\n")
    assert main(["audit", str(path)]) == 0
    out = capsys.readouterr().out
    assert "1 problems, 1 entries, 0 findings\nnot checked: retired" in out


def test_wrong_input_is_told(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["none.fdb.txt", "--arch", "gfx942"], "there is no such file"),
        ([str(path), "--arch", "gfx90a"], "its name says gfx942"),
        ([str(path), "--cu", "0"], "--cu: expected 1 to 4095"),
        ([str(path), "--top", "-1"], "--top"),
        ([str(path), "--reason", "mood"], "invalid choice"),
    ):
        assert main(["audit", *words]) == 2
        assert message in capsys.readouterr().err
    path.write_text("nonsense\n")
    assert main(["audit", str(path)]) == 2
    assert "1 issue" in capsys.readouterr().out
