"""Recorded tuning runs of others."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.predictor.benchmark_hub import read_benchmark_hub


@pytest.fixture(scope="session")
def benchmark_hub() -> Path:
    folder = Path(__file__).parents[3] / "shared" / "benchmark-hub"
    if not folder.is_dir():
        pytest.skip("the recorded runs are not beside this checkout (../shared/benchmark-hub)")
    return folder


def cache(**changes: Any) -> dict[str, Any]:
    content = {
        "device_name": "A100",
        "kernel_name": "copy",
        "problem_size": [4096, 1],
        "tune_params_keys": ["block", "vector", "unroll"],
        "tune_params": {"block": [32, 64], "vector": [1, 2], "unroll": [1]},
        "cache": {
            "32,1,1": {"block": 32, "vector": 1, "unroll": 1, "time": 2.5, "compile_time": 500.0},
            "64,2,1": {"block": 64, "vector": 2, "unroll": 1, "time": "CompilationFailedConfig"},
        },
    }
    return {**content, **changes}


def write(folder: Path, content: Any) -> Path:
    path = folder / "copy.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "device", "configs", "failed"),
    [
        ("convolution_milo_A100", "NVIDIA A100-PCIE-40GB", 4362, 161),
        ("convolution_milo_MI250X", "", 4362, 0),
        ("convolution_milo_W6600", "AMD Radeon PRO W6600", 4362, 0),
    ],
)
def test_the_hub_s_runs_are_read_whole(
    benchmark_hub: Path, name: str, device: str, configs: int, failed: int
) -> None:
    run = read_benchmark_hub(benchmark_hub / f"{name}.json.gz")
    assert (run.device, run.problem_size) == (device, (4096, 4096))
    assert len(run.table) == len(set(run.configs())) == configs
    assert (run.table["status"] != "measured").sum() == run.table["time_ms"].isna().sum() == failed
    assert all(config in run.space for config in run.configs())
    assert set(run.space.names) == set(
        "block_size_x block_size_y tile_size_x tile_size_y read_only use_padding use_shmem".split()
    )
    measured = run.table[run.table["status"] == "measured"]
    assert (measured["measure_seconds"] > 0).all()


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.integers(1, 1024), st.integers(0, 8)),
        st.one_of(st.floats(1e-6, 1e6), st.sampled_from(["RuntimeFailedConfig", "InvalidConfig"])),
        min_size=1,
        max_size=20,
    )
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, times: dict[tuple[int, int], float | str]
) -> None:
    entries = {f"{a},{b}": {"A": a, "B": b, "time": time} for (a, b), time in times.items()}
    content = cache(tune_params_keys=["A", "B"], tune_params={}, cache=entries)
    path = tmp_path_factory.mktemp("hub") / "run.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    run = read_benchmark_hub(path)
    assert [(c["A"], c["B"]) for c in run.configs()] == list(times)
    read = run.table["time_ms"].tolist()
    for told, got in zip(times.values(), read, strict=True):
        assert np.isnan(got) if isinstance(told, str) else got == told


def test_a_run_that_goes_on_is_read_as_far_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path, cache())
    path.write_text(path.read_text(encoding="utf-8").removesuffix("}}") + ",\n", encoding="utf-8")
    assert read_benchmark_hub(path).table["status"].tolist() == ["measured", "compile error"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "expected an object"),
        ({"cache": {}}, "no list 'tune_params_keys'"),
        (cache(cache={}), "holds no config"),
        (cache(cache={"32,1,1": 3}), "expected an object, got int"),
        (cache(cache={"32,1,1": {"block": "x", "time": 1.0}}), "expected a whole number, got 'x'"),
        (cache(problem_size=["wide"]), "expected numbers, got ['wide']"),
    ],
)
def test_what_is_no_cache_file_is_refused(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(InputError) as refusal:
        read_benchmark_hub(write(tmp_path, content))
    assert said in str(refusal.value)
    assert "copy.json" in str(refusal.value)


def test_what_is_no_file_or_no_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        read_benchmark_hub(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{]", encoding="utf-8")
    with pytest.raises(InputError, match="is no JSON"):
        read_benchmark_hub(tmp_path / "bad.json")
    (tmp_path / "bad.json.gz").write_bytes(b"\x1f\x8bno gzip")
    with pytest.raises(InputError, match="can't be read"):
        read_benchmark_hub(tmp_path / "bad.json.gz")
