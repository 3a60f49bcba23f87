"""Training a candidate model, asking it, and keeping it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.gemm.problem import GemmProblem
from foretune.kernels.registry import solver
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.space import Config
from foretune.predictor.kernels.bundle import load_candidates
from foretune.predictor.kernels.features import parse_config
from foretune.predictor.kernels.model import KernelModel
from foretune.predictor.kernels.models import candidate_model
from foretune.predictor.kernels.training import CandidateReport, train_kernels
from tests.predictor.kernels.conftest import DEVICE, SETTINGS, problems, time_ms

SEEN = ConvProblem("F", 8, 64, (28, 28), 64, (3, 3))


def test_picks_are_near_the_best_on_shapes_never_seen(trained: CandidateReport) -> None:
    score = trained.metrics["scores"]["all"]
    assert score["problems"] == len(problems())
    assert score["slowdown"] < 1.25
    assert score["top4_slowdown"] <= score["slowdown"]


def test_the_pick_is_near_the_best_of_a_new_shape(model: KernelModel) -> None:
    problem = ConvProblem("F", 8, 96, (21, 21), 96, (1, 1))
    ranking = model.rank(problem, DEVICE, top=4)
    times = [time_ms(problem, one.solver, parse_config(one.config)) for one in ranking.candidates]
    everything = [
        time_ms(problem, known, dict(config))
        for known in ("Conv1x1Gemm", "ConvImplicitGemm")
        for config in solver("conv", known).space(problem, DEVICE).sample(400)
    ]
    assert ranking.candidates[0].solver == "Conv1x1Gemm"
    assert times[0] < 1.6 * min(everything)
    assert ranking.candidates[0].predicted_ms == pytest.approx(times[0], rel=1.0)


_SIZES = st.sampled_from([1, 3, 8, 16, 24, 63, 64, 128, 200])


@st.composite
def _any_problem(draw: st.DrawFn) -> ConvProblem:
    ndim = draw(st.sampled_from([2, 2, 2, 3]))
    taps = draw(st.sampled_from([1, 3, 5]))
    groups = draw(st.sampled_from([1, 1, 2]))
    return ConvProblem(
        draw(st.sampled_from("FBW")),
        draw(st.integers(1, 40)),
        groups * draw(_SIZES),
        (draw(st.integers(taps, 40)),) * ndim,
        groups * draw(_SIZES),
        (taps,) * ndim,
        stride=(draw(st.sampled_from([1, 2])),) * ndim,
        padding=(draw(st.sampled_from([0, taps // 2])),) * ndim,
        groups=groups,
        dtype=draw(st.sampled_from(["FP32", "FP16", "BF16"])),
        layout=draw(st.sampled_from([("NCHW", "NCDHW"), ("NHWC", "NDHWC")]))[ndim - 2],
    )


@settings(deadline=None, max_examples=40)
@given(problem=_any_problem(), deterministic=st.booleans(), limited=st.booleans())
def test_every_candidate_can_run_within_the_limits(
    model: KernelModel, problem: ConvProblem, deterministic: bool, limited: bool
) -> None:
    limit = 0 if limited else None
    ranking = model.rank(problem, DEVICE, deterministic=deterministic, workspace_limit=limit)
    for one in ranking.candidates:
        known, config = solver("conv", one.solver), Config(parse_config(one.config))
        assert known.is_applicable(problem, DEVICE)
        assert config in known.space(problem, DEVICE)
        assert not (deterministic and known.adds_atomically(problem, config))
        assert not limited or known.workspace_size(problem, config) == 0
        assert 0 <= one.score <= 1
        assert one.predicted_ms > 0
    keys = [one.key for one in ranking.candidates]
    assert len(set(keys)) == len(keys)
    if problem.dtype != "FP32" or problem.ndim == 3 or problem.groups > 1:
        assert not ranking.accepted


def test_what_is_excluded_is_left_out_and_then_nothing_is_accepted(model: KernelModel) -> None:
    first, second = model.rank(SEEN, DEVICE, top=2).candidates
    without = model.rank(SEEN, DEVICE, excluded={first.key}, top=1)
    assert [one.key for one in without.candidates] == [second.key]
    assert not without.accepted
    assert "excluded" in without.reason
    assert len(model.rank(SEEN, DEVICE, top=3).candidates) == 3


def test_scores_and_order_do_not_depend_on_how_many_are_asked_for(model: KernelModel) -> None:
    few, many = (model.rank(SEEN, DEVICE, top=top) for top in (1, 8))
    assert few.candidates[0] == many.candidates[0]
    assert (few.accepted, few.reason) == (many.accepted, many.reason)


@pytest.mark.parametrize(
    ("problem", "device"),
    [
        (replace(SEEN, direction="W", out_size=()), DEVICE),
        (ConvProblem("F", 8, 64, (28, 28), 64, (3, 3), dtype="BF16"), DEVICE),
        (ConvProblem("F", 8, 64, (28, 28), 64, (3, 3), layout="NHWC"), DEVICE),
        (ConvProblem("F", 8, 64, (9, 28, 28), 64, (3, 3, 3)), DEVICE),
        (ConvProblem("F", 800, 64, (28, 28), 64, (3, 3)), DEVICE),
        (ConvProblem("F", 8, 64, (28, 28), 64, (3, 3), dtype="INT8"), DEVICE),
        (ConvProblem("F", 8, 64, (28, 28), 64, (3, 3), bias=1), DEVICE),
        (SEEN, replace(DEVICE, name="another GPU")),
        (SEEN, replace(DEVICE, compute_units=99)),
        (GemmProblem(8, 8, 8), DEVICE),
    ],
    ids=str,
)
def test_what_was_not_learnt_is_never_accepted(
    model: KernelModel, problem: ConvProblem, device: DeviceProperties
) -> None:
    ranking = model.rank(problem, device, risk=0.99)
    assert not ranking.accepted
    assert ranking.reason


def test_accepted_at_a_risk_means_accepted_at_a_higher_one(model: KernelModel) -> None:
    for problem in problems():
        accepted = [model.rank(problem, DEVICE, risk=risk, top=1).accepted for risk in (0.05, 0.2)]
        assert accepted[1] or not accepted[0]
    with pytest.raises(InputError, match="risk"):
        model.rank(SEEN, DEVICE, risk=2.0)


def test_the_same_data_gives_the_same_files(
    dataset: Path, trained: CandidateReport, tmp_path: Path
) -> None:
    again = train_kernels([dataset], "sm_00", tmp_path, workers=2, settings=SETTINGS)
    names = {path.name for path in Path(trained.folder).iterdir()}
    assert names == {path.name for path in Path(again.folder).iterdir()}
    for name in names:
        assert Path(again.folder, name).read_bytes() == Path(trained.folder, name).read_bytes()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _other_version(path: Path) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "feature_version": 99}))


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("candidates.forests", _cut),
        ("model.json", _cut),
        ("calibration.json", _cut),
        ("feature_spec.json", _other_version),
        ("model.json", Path.unlink),
        ("manifest.json", _cut),
    ],
)
def test_a_damaged_bundle_is_refused(
    trained: CandidateReport, tmp_path: Path, name: str, spoil: Callable[[Path], object]
) -> None:
    shutil.copytree(trained.folder, tmp_path / "conv")
    spoil(tmp_path / "conv" / name)
    with pytest.raises(InputError):
        load_candidates(tmp_path / "conv")


@settings(deadline=None, max_examples=30)
@given(name=st.sampled_from(["candidates", "places", "lists", "scale", "kinds", "ranges"]))
def test_a_model_without_its_parts_is_refused_also_without_a_manifest(
    trained: CandidateReport, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    home = tmp_path_factory.mktemp("spoilt") / "conv"
    shutil.copytree(trained.folder, home)
    (home / "manifest.json").unlink()
    content = json.loads((home / "model.json").read_text())
    few: object = content[name][:1] if isinstance(content[name], list) else {}
    for spoilt in (None, [], few):
        if spoilt != content[name] and (spoilt or name not in ("kinds", "ranges")):
            (home / "model.json").write_text(json.dumps({**content, name: spoilt}))
            with pytest.raises(InputError, match="damaged"):
                load_candidates(home)
        if name == "kinds":
            break


def test_the_users_model_comes_first(
    trained: CandidateReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORETUNE_CACHE", str(tmp_path))
    assert candidate_model(DEVICE, "conv") is None
    shutil.copytree(trained.folder, tmp_path / "models" / "sm_00" / "conv")
    found = candidate_model(DEVICE, "conv")
    assert found is not None
    assert found is candidate_model(DEVICE, "conv")
    assert found.rank(SEEN, DEVICE).candidates
    assert candidate_model(DEVICE, "gemm") is None


def test_system_database_and_card_come_with_it(trained: CandidateReport) -> None:
    home = Path(trained.folder)
    card = (home / "MODEL_CARD.md").read_text()
    assert "a made-up GPU" in card
    assert "train kernels" in card
    database = json.loads((home / "system_database.json").read_text())
    assert database["devices"][0]["name"] == DEVICE.name
    thresholds = json.loads((home / "calibration.json").read_text())["entries"][0]["thresholds"]
    assert np.all(np.diff([level["risk"] for level in thresholds]) > 0)
