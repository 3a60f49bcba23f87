"""Wrong entries are found, and right ones left alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.devices import device_facts
from foretune.miopen.audit import REASONS, AuditReport, audit_find_db
from foretune.miopen.audit_neighbours import Measured, Series
from foretune.miopen.audit_roofline import least_ms, winograd_saving
from foretune.miopen.find_db import FindItem, FindRecord, write_find_db
from foretune.miopen.keys import format_find_key
from foretune.miopen.predictor import MIOpenPredictor
from foretune.miopen.solvers import SOLVERS
from foretune.miopen.workspace import workspace_bytes
from tests.cli.conftest import lines_of
from tests.strategies import problems

ARCH, NAME = "gfx942", "gfx942130.HIP.fdb.txt"
SHAPE = ConvProblem("F", 32, 256, (28, 28), 256, (3, 3), padding=(1, 1), dtype="FP16")
CK = "ConvHipImplicitGemmGroupFwdXdlops"
NAIVE = "ConvDirectNaiveConvFwd"


def entry(problem: ConvProblem, solver: str, time_ms: float) -> FindItem:
    workspace = workspace_bytes(solver, problem, ARCH)
    assert workspace is not None
    algorithm = SOLVERS[solver].algorithm(problem.direction)
    return FindItem(solver, time_ms, workspace, algorithm)


def record(problem: ConvProblem, *items: FindItem) -> FindRecord:
    return FindRecord(format_find_key(problem), items)


def clean_records() -> list[FindRecord]:
    """Four batches of one shape, timed as the model expects."""
    predictor = MIOpenPredictor(ARCH)
    records = []
    for batch in (8, 16, 32, 64):
        problem = replace(SHAPE, batch=batch)
        best = predictor.predict(problem).solutions[0]
        items = [
            entry(problem, best.solver, best.predicted_ms),
            entry(problem, "GemmFwdRest", 0.1 * batch),
        ]
        records.append(record(problem, *items))
    return records


def audit(tmp_path: Path, records: list[FindRecord], miopen: str = "") -> AuditReport:
    path = tmp_path / NAME
    write_find_db(path, records)
    return audit_find_db(path, miopen=miopen)


def test_a_clean_database_stays_quiet(tmp_path: Path) -> None:
    report = audit(tmp_path, clean_records(), "3.6")
    assert (report.problems, report.items) == (4, 8)
    assert report.findings == ()
    assert report.not_checked == ()


def plant(reason: str) -> FindRecord:
    """A record of one more batch with one wrong entry."""
    problem = replace(SHAPE, batch=48)
    good = entry(problem, "GemmFwdRest", 4.8)
    fast = MIOpenPredictor(ARCH).predict(problem).solutions[0]
    best = entry(problem, fast.solver, fast.predicted_ms)
    match reason:
        case "time":
            return record(problem, replace(good, time_ms=0.0), best)
        case "roofline":
            return record(problem, best, replace(good, time_ms=0.001))
        case "workspace":
            return record(problem, best, replace(good, workspace=good.workspace - 2))
        case "algorithm":
            return record(problem, best, replace(good, algorithm="miopenConvolutionFwdAlgoFFT"))
        case "unknown":
            return record(problem, best, replace(good, solver="ConvOfTheFuture"))
        case "retired":
            return record(problem, best, entry(problem, "ConvOclDirectFwdGen", 5.0))
        case "batch":
            return record(problem, best, replace(good, time_ms=60.0))
        case "slow":
            return record(problem, entry(problem, "fft", 40 * fast.predicted_ms))
    return record(problem, entry(problem, NAIVE, 1.0), replace(good, time_ms=1.1))


@pytest.mark.parametrize("reason", REASONS)
def test_every_kind_of_planted_error_is_found(tmp_path: Path, reason: str) -> None:
    wrong = plant(reason)
    report = audit(tmp_path, [*clean_records(), wrong], "3.6")
    found = [finding for finding in report.findings if finding.reason == reason]
    assert [(finding.key, finding.line) for finding in found] == [(wrong.key, 5)]
    assert {finding.key for finding in report.findings} == {wrong.key}
    assert report.counts[reason] == 1
    assert found[0].detail
    assert json.loads(json.dumps(report.to_dict()))["findings"][0]["key"] == wrong.key
    if found[0].better:
        assert found[0].better != found[0].solver
        assert found[0].better_ms


def test_the_models_pick_is_named_unless_it_is_the_suspect(tmp_path: Path) -> None:
    problem = replace(SHAPE, batch=48)
    pick = MIOpenPredictor(ARCH).predict(problem).solutions[0].solver
    one = record(problem, replace(entry(problem, pick, 1.0), time_ms=0.0))
    two = record(replace(problem, batch=47), replace(entry(problem, "fft", 1.0), time_ms=-1.0))
    findings = audit(tmp_path, [one, two]).only(["time"]).findings
    assert [(found.solver, found.better) for found in findings] == [(pick, None), ("fft", pick)]


def test_a_wrong_time_is_no_neighbour_for_others(tmp_path: Path) -> None:
    wrong = replace(SHAPE, batch=128)
    records = [*clean_records(), record(wrong, entry(wrong, "GemmFwdRest", 1e-5))]
    assert audit(tmp_path, records).counts == {"roofline": 1}


def test_what_can_not_be_checked_is_told(tmp_path: Path) -> None:
    path = tmp_path / "gfx1030_36.HIP.fdb.txt"
    write_find_db(path, [plant("time")])
    report = audit_find_db(path)
    assert report.counts == {"time": 1}
    assert [text.partition(":")[0] for text in report.not_checked] == [
        "roofline",
        "retired",
        "slow, better solvers",
    ]


def test_a_user_databases_name_says_the_release(tmp_path: Path) -> None:
    for release, expected in (("3_6_0_", "3.6.0"), ("3_6_1_ab-dirty", "3.6.1"), ("2_20_0_", "any")):
        path = tmp_path / f"gfx942130.HIP.{release}.ufdb.txt"
        write_find_db(path, [plant("retired")])
        report = audit_find_db(path)
        assert report.miopen == expected
        assert ("retired" in report.counts) == (expected != "any")


def test_wrong_input_is_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    write_find_db(path, clean_records())
    with pytest.raises(InputError, match="--arch"):
        audit_find_db(path)
    assert audit_find_db(path, "gfx942:sramecc+:xnack-").compute_units == 304
    with pytest.raises(InputError, match="how many has gfx1030"):
        audit_find_db(path, "gfx1030")
    with pytest.raises(InputError, match="expected a MIOpen release"):
        audit_find_db(path, "gfx942", miopen="new")
    named = tmp_path / NAME
    write_find_db(named, clean_records())
    with pytest.raises(InputError, match="its name says gfx942"):
        audit_find_db(named, "gfx90a")
    perf = tmp_path / "gfx942130.db.txt"
    perf.write_text("2x64x28x28x1x3x3x1x3x32x1x1x0x2x2x0x1x1x0x0x1xNCHWxFP16xB=A:1\n")
    with pytest.raises(InputError, match="this is no find-db"):
        audit_find_db(perf)
    with pytest.raises(InputError, match="there is no such file"):
        audit_find_db(tmp_path / "none")


def test_an_unreadable_key_costs_its_line(tmp_path: Path) -> None:
    path = tmp_path / NAME
    write_find_db(path, clean_records())
    with path.open("a") as file:
        key = "64-56-56-1x1-128-57-56-32-0x0-1x1-1x1-0-NCHW-FP16-F"
        file.write(f"{key}=a:1,0,miopenConvolutionFwdAlgoGEMM\n")
    report = audit_find_db(path)
    assert report.problems == 4
    assert [issue.line for issue in report.issues] == [5]


def brute_force_pairs(problem: ConvProblem) -> int:
    """Products of one pair of channels, counted one by one."""
    total = 1
    for size, fil, step, pad, dil, out in zip(
        problem.in_size,
        problem.filter_size,
        problem.stride,
        problem.padding,
        problem.dilation,
        problem.out_size,
        strict=True,
    ):
        total *= sum(0 <= o * step + f * dil - pad < size for o in range(out) for f in range(fil))
    return total


@settings(max_examples=30, deadline=None)
@given(problems(dtypes=("FP32", "FP16"), uniform=True, casts=False))
def test_the_bound_is_that_of_the_counted_products_or_of_bytes(problem: ConvProblem) -> None:
    device = device_facts("gfx90a")
    least = least_ms(problem, "GemmFwdRest", "GEMM", device)
    assert least is not None
    channels = problem.batch * problem.out_channels * (problem.in_channels // problem.groups)
    flops = 2 * channels * brute_force_pairs(problem)
    math = 1e3 * flops / device.peak_flops(2 if problem.dtype == "FP16" else 4)
    everything = problem.in_bytes + problem.weight_bytes + problem.out_bytes
    assert math <= least * (1 + 1e-12)
    assert least <= max(math, 1e3 * everything / (device.bandwidth_gbs * 1e9)) * (1 + 1e-12)
    winograd = least_ms(problem, "ConvBinWinogradRxSf2x3", "Winograd", device)
    fft = least_ms(problem, "fft", "FFT", device)
    assert winograd is not None
    assert winograd <= least
    assert fft is not None
    assert fft <= least


@pytest.mark.parametrize(("solver", "saving"), [("<3-2>", 2.25), ("<7-2-1-1>", 14 / 8), ("", 2.25)])
def test_a_winograd_solver_saves_what_its_tiles_save(solver: str, saving: float) -> None:
    name = f"ConvWinograd3x3MultipassWrW{solver}" if solver else "ConvBinWinogradRxS"
    assert winograd_saving(name) == pytest.approx(saving)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.integers(1, 99), st.floats(0.01, 100), max_size=8), st.integers(1, 99))
def test_neighbours_are_scaled(times: dict[int, float], batch: int) -> None:
    found = Series(Measured(time_ms, at) for at, time_ms in times.items()).scaled_to(batch)
    expected = [time_ms * max(1, batch / at) for at, time_ms in times.items() if at != batch]
    assert (found is None) == (not expected)
    if found:
        assert found[0] == pytest.approx(min(expected))


def test_amds_database_has_no_time_below_the_roofline(miopen_db: Path, tmp_path: Path) -> None:
    """Nor a workspace or a solver that is doubted, in every fortieth record of the file."""
    path = tmp_path / NAME
    path.write_text("\n".join(lines_of(miopen_db / f"{NAME}.bz2", 40)) + "\n")
    report = audit_find_db(path)
    assert report.problems > 3000
    assert set(report.counts) <= {"time", "batch", "slow", "naive"}
    assert len(report.findings) < 0.01 * report.items
