"""`foretune tune`: the dataset, its datasheet, and going on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from foretune.cli import main
from tests.kernels.processor import needs_processor

LINE = "8-10-10-3x3-8-8-8-2-0x0-1x1-1x1-0-NHWC-NHWC-NHWC-FP32-F_g8"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "mine.txt"
    path.write_text(f"# one\n{LINE}\n")
    return path


@needs_processor
def test_a_suite_becomes_a_dataset(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.parquet"
    words = ["tune", "--suite", str(suite), "--device", "cpu", "--out", str(out), "--workers", "1"]
    assert main([*words, "--sample", "1"]) == 0
    first, error = capsys.readouterr()
    assert "measuring" in first
    assert "everything was tried" in first
    assert "\r" not in error, "a progress bar where nobody watches"
    rows = pq.read_table(out).to_pylist()
    measured = [row for row in rows if row["status"] == "measured"]
    assert {"ConvNaive", "ConvDepthwise"} <= {row["solver"] for row in measured}
    assert all(row["time_ms"] > 0 for row in measured)
    assert "ConvNaive" in out.with_suffix(".md").read_text()
    assert main([*words, "--sample", "1"]) == 0
    assert "0 trials" in capsys.readouterr().out
    assert pq.read_table(out).num_rows == len(rows)


@needs_processor
def test_a_model_may_choose_what_is_tried(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.parquet"
    words = ["tune", "--suite", str(suite), "--device", "cpu", "--out", str(out), "--workers", "1"]
    assert main([*words, "--sample", "2", "--active"]) == 0
    assert "everything was tried" in capsys.readouterr().out
    rows = pq.read_table(out).to_pylist()
    tried = [(row["solver"], row["config"]) for row in rows if row["config"]]
    counts = Counter(solver for solver, _ in tried)
    assert len(set(tried)) == len(tried)
    assert counts["ConvDepthwise"] == max(counts.values()) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--suite", "resnet51", "--out", "a.parquet"], "no suite is called so"),
        (["--suite", "cpu", "--out", "a.csv"], "ends in .parquet"),
        (["--suite", "cpu", "--out", "missing/a.parquet"], "no such folder"),
        (["--suite", "cpu", "--out", "a.parquet", "--workers", "0"], "expected at least 1"),
        (["--suite", "cpu", "--out", "a.parquet", "--active", "--first", "a.txt"], "choose one"),
        (["--suite", "cpu", "--out", "a.parquet", "--device", "cpu", "--sample", "0"], "sample"),
        (["--suite", "cpu", "--out", "a.parquet", "--device", "abacus"], "unknown device"),
    ],
)
def test_wrong_input_is_told_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["tune", *words]) == 2
    _, error = capsys.readouterr()
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())
