"""Answers of the shipped models."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.cli import main
from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.devices import KNOWN_DEVICES
from foretune.miopen.model_card import write_model_card
from foretune.miopen.predictor import BORROWED_MODELS, MIOpenPredictor, shipped_models
from foretune.miopen.solvers import SOLVERS, can_run
from foretune.miopen.workspace import workspace_bytes
from tests.strategies import problems

ARCHS = ("gfx908", "gfx90a", "gfx942")
GOLDEN = Path(__file__).with_name("golden")
PLAIN = ConvProblem("F", 32, 64, (56, 56), 64, (3, 3), padding=(1, 1), dtype="FP16")


@pytest.mark.parametrize("arch", ARCHS)
def test_golden_predictions(arch: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Made by `foretune predict --json --arch ARCH --from problems.txt > ARCH.jsonl`."""
    command = ["predict", "--json", "--arch", arch, "--from", str(GOLDEN / "problems.txt")]
    assert main(command) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = [json.loads(line) for line in (GOLDEN / f"{arch}.jsonl").read_text().splitlines()]
    assert len(answers) == len(expected) == 18
    for answer, wanted in zip(answers, expected, strict=True):
        for name in ("problem", "arch", "accepted", "risk"):
            assert answer[name] == wanted[name]
        for got, want in zip(answer["solutions"], wanted["solutions"], strict=True):
            assert got["solver"] == want["solver"], answer["problem"]
            assert got["config"] == want["config"]
            assert got["workspace"] == want["workspace"]
            assert got["predicted_ms"] == pytest.approx(want["predicted_ms"], rel=1e-6)
            assert got["score"] == pytest.approx(want["score"], abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(problems(), st.sampled_from(KNOWN_DEVICES), st.sampled_from(["any", "3.4", "3.6"]))
def test_any_problem_gets_an_answer(problem: ConvProblem, device: object, miopen: str) -> None:
    facts = next(known for known in KNOWN_DEVICES if known == device)
    predictor = MIOpenPredictor(facts.arch, facts.compute_units, miopen=miopen)
    answer = predictor.predict(problem)
    assert answer.reason
    scores = [solution.score for solution in answer.solutions]
    assert all(0 <= score <= 1 for score in scores)
    assert len({solution.solver for solution in answer.solutions}) == len(answer.solutions)
    for solution in answer.solutions:
        assert solution.predicted_ms > 0
        assert can_run(solution.solver, facts.arch, miopen)
        known = SOLVERS.get(solution.solver)
        if known:
            assert problem.direction in known.directions
            arch = BORROWED_MODELS.get(facts.arch, facts.arch)
            assert solution.workspace == workspace_bytes(solution.solver, problem, arch)
    if answer.accepted:
        assert answer.solutions


@pytest.mark.parametrize("arch", [*ARCHS, "gfx950", "gfx1100"])
@pytest.mark.parametrize("miopen", ["any", "3.6"])
def test_many_together_get_the_answers_that_each_gets_alone(arch: str, miopen: str) -> None:
    units = 64 if arch == "gfx1100" else None
    kinds = [
        ConvProblem(direction, batch, channels, size, 64, (3,) * len(size), groups=groups, dtype=t)
        for direction in "FBW"
        for batch in (1, 32)
        for channels, groups in ((64, 1), (96, 32), (100_000, 1))
        for size in ((28, 28), (8, 14, 14))
        for t in ("FP16", "FP32", "FP64")
        if not 64 % groups
    ]
    together = MIOpenPredictor(arch, units, miopen=miopen).predict_many([*kinds, *kinds[:3]])
    alone = MIOpenPredictor(arch, units, miopen=miopen)
    assert len(together) == len(kinds) + 3
    for problem, many in zip([*kinds, *kinds[:3]], together, strict=True):
        one = alone.predict(problem)
        assert (many.problem, many.accepted) == (problem, one.accepted)
        assert many.reason.split(" 0.")[0] == one.reason.split(" 0.")[0]
        assert [s.solver for s in many.solutions] == [s.solver for s in one.solutions]
        assert [s.config for s in many.solutions] == [s.config for s in one.solutions]
        for ours, theirs in zip(many.solutions, one.solutions, strict=True):
            assert ours.workspace == theirs.workspace
            assert ours.score == pytest.approx(theirs.score, rel=1e-5, abs=1e-6)
            assert ours.predicted_ms == pytest.approx(theirs.predicted_ms, rel=1e-6)


def test_what_was_never_learnt_is_not_accepted() -> None:
    predictor = MIOpenPredictor("gfx942")
    for change in ({"dtype": "FP64"}, {"dtype": "FP8"}, {"layout": "CHWN"}):
        blank = {"weight_dtype": "", "out_dtype": "", "weight_layout": "", "out_layout": ""}
        answer = predictor.predict(replace(PLAIN, **blank, **change))  # type: ignore[arg-type]
        assert not answer.accepted
        assert "no data" in answer.reason
    huge = replace(PLAIN, batch=1_000_000)
    answer = predictor.predict(huge)
    assert not answer.accepted
    assert "outside what was learnt" in answer.reason
    assert answer.solutions


@pytest.mark.parametrize(("arch", "units"), [("gfx942", 228), ("gfx942", 80), ("gfx942", 38)])
def test_counts_without_data_are_answered_not_accepted(arch: str, units: int) -> None:
    answer = MIOpenPredictor(arch, units, risk=0.2).predict(PLAIN)
    assert answer.solutions
    assert not answer.accepted
    assert f"no data for {units} units" in answer.reason


@pytest.mark.parametrize("arch", ["gfx1100", "gfx803", "gfx999"])
def test_an_arch_without_model_has_no_solutions(arch: str) -> None:
    answer = MIOpenPredictor(arch).predict(PLAIN)
    assert (answer.solutions, answer.accepted) == ((), False)
    assert arch in answer.reason


def test_an_arch_without_databases_borrows_a_model() -> None:
    answer = MIOpenPredictor("gfx950", risk=0.2).predict(PLAIN)
    assert answer.solutions
    assert not answer.accepted
    assert answer.reason.startswith("no data for gfx950")


def test_an_arch_may_be_named_as_devices_do() -> None:
    plain, full = MIOpenPredictor("gfx90a"), MIOpenPredictor("gfx90a:sramecc+:xnack-")
    assert plain.predict(PLAIN) == full.predict(PLAIN)


def test_a_higher_risk_accepts_no_less() -> None:
    shapes = [replace(PLAIN, batch=n, in_channels=c) for n in (1, 8, 64) for c in (16, 64, 256)]
    for arch in ARCHS:
        counts = [
            sum(answer.accepted for answer in MIOpenPredictor(arch, risk=risk).predict_many(shapes))
            for risk in (0.001, 0.02, 0.05, 0.2)
        ]
        assert counts == sorted(counts)
        assert counts[0] == 0
        assert counts[-1] > 0


def test_top_limits_the_solutions() -> None:
    predictor = MIOpenPredictor("gfx90a")
    all_of_them = predictor.predict(PLAIN).solutions
    assert predictor.predict(PLAIN, top=1).solutions == all_of_them[:1]
    assert len(all_of_them) > 1


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(InputError, match="risk"):
        MIOpenPredictor("gfx942", risk=0)
    with pytest.raises(InputError, match="compute units"):
        MIOpenPredictor("gfx942", 0)
    with pytest.raises(InputError, match="arch"):
        MIOpenPredictor("no such thing")
    with pytest.raises(InputError, match="version"):
        MIOpenPredictor("gfx942", miopen="new")


def test_models_may_stand_elsewhere(tmp_path: Path) -> None:
    shutil.copytree(shipped_models() / "gfx908", tmp_path / "gfx908")
    here = MIOpenPredictor("gfx908", models=tmp_path).predict(PLAIN)
    assert here == MIOpenPredictor("gfx908").predict(PLAIN)
    assert not MIOpenPredictor("gfx942", models=tmp_path).predict(PLAIN).solutions


def test_a_folder_that_holds_no_models_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        MIOpenPredictor("gfx942", models=tmp_path / "nowhere")
    with pytest.raises(InputError, match="name the folder that it is in"):
        MIOpenPredictor("gfx942", models=shipped_models() / "gfx942")


def test_a_direction_without_a_model_has_no_solutions(tmp_path: Path) -> None:
    shutil.copytree(shipped_models() / "gfx942", tmp_path / "gfx942")
    path = tmp_path / "gfx942" / "model.json"
    content = json.loads(path.read_text())
    del content["W"]
    path.write_text(json.dumps(content))
    # What it states is no longer so.
    (tmp_path / "gfx942" / "manifest.json").unlink()
    predictor = MIOpenPredictor("gfx942", models=tmp_path)
    assert predictor.predict(PLAIN).solutions
    answer = predictor.predict(replace(PLAIN, direction="W"))
    assert (answer.accepted, answer.solutions) == (False, ())
    assert "direction W" in answer.reason


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("direction", ["F", "B", "W"])
def test_sizes_that_no_device_holds_are_answered(direction: str) -> None:
    most = 2**31 - 1
    sizes = (most,) * 3
    huge = ConvProblem(
        direction, most, most, sizes, most, sizes, padding=(most // 2,) * 3, dtype="FP16"
    )
    answer = MIOpenPredictor("gfx942").predict(huge)
    assert not answer.accepted
    for solution in answer.solutions:
        json.dumps(solution.to_dict(), allow_nan=False)


@pytest.mark.parametrize("arch", ARCHS)
def test_bundles_are_small_and_plain(arch: str) -> None:
    files = sorted(file for file in (shipped_models() / arch).iterdir() if file.is_file())
    assert sum(file.stat().st_size for file in files) <= 12 * 2**20
    assert {file.suffix for file in files} <= {".json", ".forests", ".md"}
    names = {file.name for file in files}
    assert {
        "feature_spec.json",
        "manifest.json",
        "calibration.json",
        "metrics.json",
        "MODEL_CARD.md",
    } <= names
    calibration = json.loads((shipped_models() / arch / "calibration.json").read_text())
    assert calibration["confidence"] == 0.9


@pytest.mark.parametrize("arch", ARCHS)
def test_a_model_card_says_what_was_measured(arch: str, tmp_path: Path) -> None:
    for name in ("manifest.json", "metrics.json"):
        shutil.copy(shipped_models() / arch / name, tmp_path)
    write_model_card(tmp_path)
    card = (tmp_path / "MODEL_CARD.md").read_text()
    assert card == (shipped_models() / arch / "MODEL_CARD.md").read_text()
    for score in json.loads((tmp_path / "metrics.json").read_text())["configs"].get("scores", []):
        assert f"| {score['solver']} {score['direction']} | {score['dtype']} |" in card
