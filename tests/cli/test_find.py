"""`foretune find`: what is accepted and what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretune.cli import main
from tests.kernels.processor import needs_processor

KEY = "8-10-10-3x3-8-8-8-2-0x0-1x1-1x1-0-NHWC-NHWC-NHWC-FP32-F_g8"
LINE = (
    "MIOpenDriver conv -n 2 -c 8 -H 10 -W 10 -k 8 -y 3 -x 3 -g 8 -F 1 "
    "--in_layout NHWC --out_layout NHWC --fil_layout NHWC"
)
TEXT = (
    "conv direction=F batch=2 in_channels=8 in_size=10x10 out_channels=8 filter_size=3x3 groups=8 "
    "layout=NHWC"
)


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretune.kernels.store._default_path", lambda: tmp_path / "found.db")


@needs_processor
def test_one_problem_in_three_spellings(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["find", "--device", "cpu", "--budget", "30", "--top", "2", "--json"]
    assert main([*words, KEY, LINE, TEXT]) == 0
    out, _ = capsys.readouterr()
    records = [json.loads(line) for line in out.splitlines()]
    assert [record["problem"] for record in records] == [KEY] * 3
    # The first is measured, the others come from the store.
    assert [record["is_stored"] for record in records] == [False, True, True]
    for record in records:
        assert 1 <= len(record["solutions"]) <= 2
        assert record["solutions"][0]["time_ms"] > 0
        assert all(left["reason"] for left in record["left_out"])


@needs_processor
def test_the_table_names_the_fastest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", "--device", "cpu", "--budget", "5", KEY]) == 0
    out, _ = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith(f"{KEY} on ")
    assert lines[1].split()[:3] == ["#", "solver", "ms"]
    assert lines[2].split()[0] == "1"
    assert lines[2].split()[1].startswith("Conv")
    assert any(line.startswith("  ConvMatrixCoreGemm: ") for line in lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-key"], "expected"),
        ([KEY, "--device", "abacus"], "unknown device 'abacus'"),
        ([KEY, "--device", "cpu", "--budget", "0"], "expected seconds above 0"),
        ([KEY, "--device", "cpu", "--top", "0"], "--top: expected at least 1"),
        ([KEY, "--device", "cpu", "--workspace-limit", "-1"], "--workspace-limit: expected bytes"),
        (["conv direction=F"], "missing"),
    ],
)
def test_wrong_input_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["find", *words]) == 2
    _, error = capsys.readouterr()
    assert said in error
    assert error.count("\n") == 1
