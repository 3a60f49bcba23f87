"""Tuned answers that come with foretune, and the defaults that rest on them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.problem_text import parse_problem
from foretune.kernels.registry import solver, solvers
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.predictor.default_candidate import default_candidate, fits
from foretune.predictor.system_database import (
    FILE_NAME,
    SystemDatabase,
    TunedRecord,
    solver_order,
    write_system_database,
)

H200 = DeviceProperties(
    *("cuda", "NVIDIA H200", "sm_90", 132, 32, 49152, 1024, 1980, 4814.3, 62914560, 150109880320),
    dynamic_local_memory=232448,
)
PROBLEM = ConvProblem("F", 4, 64, (14, 14), 64, (3, 3), padding=(1, 1))
NAMES = ("ConvNaive", "ConvDirect", "ConvImplicitGemm", "ConvIm2colGemm")


def default_key(problem: ConvProblem, name: str) -> str:
    return solver("conv", name).default_config(problem, H200).key


def record(
    time_ms: float,
    solver_id: str = "ConvNaive",
    problem: ConvProblem = PROBLEM,
    **changes: Any,
) -> TunedRecord:
    device = replace(H200, **changes)
    return TunedRecord(problem, device, solver_id, default_key(problem, solver_id), time_ms)


def test_the_fastest_come_first_and_no_more_than_a_few(tmp_path: Path) -> None:
    times = [(3.0, "ConvNaive"), (1.0, "ConvDirect"), (2.0, "ConvImplicitGemm")]
    assert write_system_database(tmp_path, [record(*one) for one in times]) == 1
    kept = SystemDatabase.read(tmp_path).candidates(PROBLEM, H200)
    assert [(one.time_ms, one.solver) for one in kept] == sorted(times)
    many = [
        TunedRecord(PROBLEM, H200, "ConvNaive", f"THREADS={number}", 1.0 + number)
        for number in range(20)
    ]
    write_system_database(tmp_path, many)
    kept = SystemDatabase.read(tmp_path).candidates(PROBLEM, H200)
    assert [one.time_ms for one in kept] == [1.0, 2.0, 3.0, 4.0]


def test_devices_of_an_arch_are_kept_apart_and_drivers_are_not(tmp_path: Path) -> None:
    records = [record(1.0), record(2.0, compute_units=114), record(3.0, name="NVIDIA H100")]
    assert write_system_database(tmp_path, records) == 3
    database = SystemDatabase.read(tmp_path)
    for known in records:
        device = replace(known.device, driver="14.0", compiler="NVRTC 14.0")
        (kept,) = database.candidates(PROBLEM, device)
        assert kept.time_ms == known.time_ms
    assert database.candidates(PROBLEM, replace(H200, compute_units=100)) == ()
    assert database.candidates(replace(PROBLEM, batch=5), H200) == ()


@st.composite
def measurements(draw: st.DrawFn) -> list[TunedRecord]:
    made = []
    for batch in range(1, draw(st.integers(2, 5))):
        problem = replace(PROBLEM, batch=batch)
        for name in draw(st.sets(st.sampled_from(NAMES), min_size=1)):
            made.append(record(draw(st.floats(0.01, 100.0)), name, problem))
    return made


@settings(max_examples=25, deadline=None)
@given(records=measurements())
def test_the_order_loses_no_more_than_any_single_move(
    records: list[TunedRecord], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("order")
    write_system_database(folder, records)
    order = list(SystemDatabase.read(folder).solver_order)
    assert set(order) == {one.solver for one in records}

    def loss(tried: list[str]) -> float:
        total = 0.0
        for problem in {one.problem for one in records}:
            times = {one.solver: one.time_ms for one in records if one.problem == problem}
            taken = next(times[name] for name in tried if name in times)
            total += log(taken / min(times.values()))
        return exp(total)

    for moved in _single_moves(order):
        assert loss(order) <= loss(moved) * (1 + 1e-6)


def _single_moves(order: list[str]) -> Iterator[list[str]]:
    for name in order:
        rest = [other for other in order if other != name]
        for place in range(len(order)):
            yield [*rest[:place], name, *rest[place:]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no system database"),
        ("[]", "no system database"),
        ("{}", "no system database"),
        ('{"format": 99}', "is of format 99, expected 1"),
        (json.dumps({"format": 1, "solver_order": [], "devices": [{}]}), "no system database"),
    ],
)
def test_a_damaged_file_is_told(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(InputError, match=f"{FILE_NAME}.*{message}"):
        SystemDatabase.read(tmp_path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        SystemDatabase.read(tmp_path)


@pytest.mark.parametrize("arch", ["sm_90", "cpu", "gfx90a", "some_arch"])
def test_every_solver_has_a_place_and_the_naive_one_the_last(arch: str) -> None:
    order = solver_order(arch, "conv")
    assert sorted(order) == sorted(one.id for one in solvers("conv"))
    assert order[-1] == "ConvNaive"


@pytest.mark.parametrize("arch", ["sm_90", "cpu"])
def test_shipped_answers_are_candidates_of_their_problems(arch: str) -> None:
    from foretune import trained_models

    folder = Path(trained_models.__path__[0], "kernels", arch, "conv")
    content = json.loads((folder / FILE_NAME).read_text())
    for device in content["devices"]:
        for text, rows in list(device["problems"].items())[::10]:
            problem = parse_problem(text)
            for name, _, time_ms in rows:
                assert solver(problem.operation, name).id == name
                assert time_ms > 0


def test_defaults_keep_to_limits() -> None:
    first = default_candidate(PROBLEM, H200)
    second = default_candidate(PROBLEM, H200, excluded={first.key})
    assert second.key != first.key
    for limit in (0, 1 << 20, 1 << 40):
        for deterministic in (False, True):
            chosen = default_candidate(
                PROBLEM, H200, workspace_limit=limit, deterministic=deterministic
            )
            assert fits(chosen, PROBLEM, limit, deterministic)
    everything = {
        f"{one.id}{{{one.default_config(PROBLEM, H200).key}}}"
        for one in solvers("conv")
        if one.is_applicable(PROBLEM, H200)
    }
    assert default_candidate(PROBLEM, H200, excluded=everything).solver.id == "ConvNaive"
    with pytest.raises(InputError, match="no solver can compute this"):
        default_candidate(ConvProblem("F", 1, 8, (9, 9), 8, (3, 3), dtype="INT8"), H200)
