"""MIOpen's databases as one table."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from foretune.errors import InputError
from foretune.miopen.dataset import cached_table, read_find_table, read_table
from foretune.miopen.learning import learning_parts

KEY = "64-56-56-3x3-64-56-56-32-1x1-1x1-1x1-0-NCHW-FP16-F"
PERF_KEY = "2x64x56x56x1x3x3x1x64x32x1x1x0x1x1x0x1x1x0x0x1xNCHWxFP16xF"
ALGORITHM = "miopenConvolutionFwdAlgo"


def write(folder: Path, lines: list[str], perf: str = "") -> Path:
    path = folder / "gfx90a6e.HIP.fdb.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    if perf:
        (folder / "gfx90a6e.db.txt").write_text(perf)
    return path


def item(solver: str, time: float, algorithm: str = "Direct") -> str:
    return f"{solver}:{time},0,{ALGORITHM}{algorithm}"


def test_a_row_for_each_listed_solver(tmp_path: Path) -> None:
    items = [item("GemmFwdRest", 2, "GEMM"), item("ConvBinWinogradRxSf3x2", 1, "Winograd")]
    write(tmp_path, [f"{KEY}={';'.join(items)}"], f"{PERF_KEY}=ConvBinWinogradRxSf3x2:104\n")
    table, report = read_table(tmp_path)
    assert (report.problems, report.items, report.issues) == (1, 2, ())
    assert table["solver"].tolist() == ["ConvBinWinogradRxSf3x2", "GemmFwdRest"]
    assert table["rank"].tolist() == [0, 1]
    assert table["config"][0] == "104"
    assert table["config"].isna().tolist() == [False, True]
    assert set(table["arch"]) == {"gfx90a"}
    assert set(table["compute_units"]) == {110}
    assert table["censored_ms"].isna().all()


def test_a_full_list_is_censored_at_its_slowest(tmp_path: Path) -> None:
    items = [item(f"ConvAsm{i}", i) for i in (3, 1, 4, 2)]
    write(tmp_path, [f"{KEY}={';'.join(items)}"])
    table, _ = read_table(tmp_path)
    assert set(table["censored_ms"]) == {4.0}
    assert table["time_ms"].is_monotonic_increasing


def test_impossible_times_are_left_out_and_told(tmp_path: Path) -> None:
    write(tmp_path, [f"{KEY}={item('GemmFwdRest', 0.0, 'GEMM')};{item('fft', 1.5, 'FFT')}"])
    table, report = read_table(tmp_path)
    assert table["solver"].tolist() == ["fft"]
    assert "GemmFwdRest" in report.issues[0].reason
    assert report.issues[0].line == 1
    with pytest.raises(InputError, match="GemmFwdRest"):
        read_table(tmp_path, strict=True)


def test_the_cache_follows_the_databases(tmp_path: Path) -> None:
    write(tmp_path, [f"{KEY}={item('fft', 1.5, 'FFT')}"])
    cache = tmp_path / "cache"
    first = cached_table(tmp_path, cache=cache)
    pd.testing.assert_frame_equal(first, cached_table(tmp_path, cache=cache))
    assert len(list(cache.glob("*.parquet"))) == 1
    write(tmp_path, [f"{KEY}={item('fft', 1.5, 'FFT')};{item('ConvAsm', 9)}"])
    assert len(cached_table(tmp_path, cache=cache)) == 2


def test_no_database_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no find-db of gfx942"):
        read_table(tmp_path, "gfx942")


def test_records_become_matrices(tmp_path: Path) -> None:
    broken = KEY.replace("-56-56-32-", "-55-56-32-")
    double = KEY.replace("FP16", "FP64")
    lines = [f"{key}={item('fft', 1.5, 'FFT')}" for key in (KEY, broken, double)]
    path = write(tmp_path, lines)
    table, _ = read_find_table(path, "gfx90a", 110)
    learning = learning_parts(table)
    forward = learning.parts["F"]
    assert forward.candidates == ("fft",)
    assert forward.names.tolist() == [KEY]
    assert forward.times.tolist() == [[1.5]]
    assert forward.devices[0].compute_units == 110
    assert sum(learning.left_out.values()) == 2
    assert "no data for type FP64" in learning.left_out
    assert math.isclose(forward.best[0], 1.5)
