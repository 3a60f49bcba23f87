"""A dataset of made-up times on a made-up device, and a model of it: no clock is involved."""

from __future__ import annotations

from dataclasses import asdict
from math import ceil, log2
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.problem_text import format_problem
from foretune.kernels.registry import solvers
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.predictor.boosting import TreeSettings
from foretune.predictor.kernels.bundle import load_candidates
from foretune.predictor.kernels.model import KernelModel
from foretune.predictor.kernels.train import CandidateSettings
from foretune.predictor.kernels.training import CandidateReport, train_kernels

DEVICE = DeviceProperties(
    *("cuda", "a made-up GPU", "sm_00", 100, 32, 49152, 1024, 1500, 1000.0, 1 << 25, 1 << 33)
)
TREES = TreeSettings(40, leaves=7, min_rows=3)
SETTINGS = CandidateSettings(
    orders=TREES, numbers=TREES, times=TREES, judge=TREES, folds=3, least_shapes=3
)
SOLVERS = ("Conv1x1Gemm", "ConvImplicitGemm", "ConvNaive")


def problems() -> list[ConvProblem]:
    """Give 1x1 and 3x3 convolutions of twelve shapes, forward and backward."""
    return [
        ConvProblem(direction, 8, channels, (size, size), channels, (taps, taps))
        for direction in "FB"
        for channels in (16, 64, 128)
        for size in (14, 28)
        for taps in (1, 3)
    ]


def time_ms(problem: ConvProblem, solver: str, config: dict[str, int]) -> float:
    """Give larger products larger tiles, filters of one place their own solver, naive the rest."""
    work = problem.flops / 1e9
    if solver == "ConvNaive":
        return 0.02 + 20 * work
    wanted = 32 if problem.out_channels < 100 else 64
    wrong = abs(log2(config["TILE_M"] / wanted)) + 0.2 * abs(log2(config["THREAD_M"] / 4))
    overhead = 1.0 if solver == "Conv1x1Gemm" else 1.3
    return (0.01 + work * overhead) * (1 + 0.3 * wrong) * (1 + 0.1 * ceil(log2(config["SPLIT_K"])))


def rows() -> list[dict[str, Any]]:
    """Give trials of up to thirty configs of each solver."""
    found = []
    for problem in problems():
        for solver in (one for one in solvers("conv") if one.id in SOLVERS):
            base = {
                **asdict(DEVICE),
                "operation": "conv",
                "problem": format_problem(problem),
                "solver": solver.id,
                "samples": 3,
            }
            reason = solver.why_not(problem, DEVICE)
            if reason is not None:
                none = {"config": "", "time_ms": None, "low_ms": None, "high_ms": None}
                found.append({**base, **none, "status": "not applicable"})
                continue
            for config in solver.space(problem, DEVICE).sample(30, seed=len(solver.id)):
                time = time_ms(problem, solver.id, dict(config))
                times = {"time_ms": time, "low_ms": time, "high_ms": time}
                found.append({**base, **times, "config": config.key, "status": "measured"})
    return found


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trials") / "conv.parquet"
    pq.write_table(pa.Table.from_pylist(rows()), path)
    return path


@pytest.fixture(scope="session")
def trained(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> CandidateReport:
    home = tmp_path_factory.mktemp("models") / "sm_00"
    return train_kernels([dataset], "sm_00", home, workers=1, settings=SETTINGS)


@pytest.fixture(scope="session")
def model(trained: CandidateReport) -> KernelModel:
    return load_candidates(trained.folder)
