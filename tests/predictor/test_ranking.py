"""Training, asking and keeping a ranking, on made-up solvers whose times follow simple laws."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.devices import device_facts
from foretune.predictor.boosting import TreeSettings
from foretune.predictor.bundle import RankingBundle, save_ranking
from foretune.predictor.dataset import RankingData, ranking_data
from foretune.predictor.evaluate import evaluate
from foretune.predictor.features.conv import feature_row, raw_numbers
from foretune.predictor.forest import save_forests
from foretune.predictor.ranking import RankingModel
from foretune.predictor.rules import cell_key
from foretune.predictor.split import part_of
from foretune.predictor.train import RankingSettings, RankingTrainer

DEVICE = device_facts("gfx90a")
TREES = TreeSettings(30, leaves=7)
SETTINGS = RankingSettings(shares=TREES, times=TREES, judge=TREES, folds=2)
NAIVE = "Naive"


def times_of(problem: ConvProblem) -> dict[str, float]:
    """Give GEMM a launch cost, Winograd only 3x3, and the naive solver the smallest problems."""
    work = problem.flops / 1e9
    times = {"Gemm": 0.05 + work, NAIVE: 0.01 + 30 * work}
    if problem.filter_size == (3, 3):
        times["Winograd"] = 0.03 + 0.6 * work
    return times


@cache
def records() -> RankingData:
    problems = [
        ConvProblem("F", batch, channels, (size, size), 64, (filt, filt), padding=(filt // 2,) * 2)
        for batch in (1, 4, 16)
        for channels in range(4, 100, 8)
        for size in (7, 14, 28, 56)
        for filt in (1, 3)
    ]
    times = [times_of(problem) for problem in problems]
    zeros = np.zeros(len(problems), np.int64)
    return ranking_data(problems, times, zeros, (DEVICE,), [str(i) for i in zeros])


def parts() -> tuple[RankingData, RankingData]:
    data = records()
    train = np.array([part_of(position) == "train" for position in data.position])
    return data.take(train), data.take(~train)


@cache
def model() -> RankingModel:
    train, _ = parts()
    return RankingTrainer(SETTINGS, workers=1).train({"F": train})["F"]


def flags(*names: str) -> np.ndarray:
    return np.array([name in names for name in model().candidates])


ALL = ("Gemm", "Naive", "Winograd")


def test_it_learns_what_wins() -> None:
    _, unseen = parts()
    outcomes, _ = evaluate(model(), unseen, flags(*ALL), flags(NAIVE))
    score = outcomes.summary()
    assert score.problems > 20
    assert score.top1 > 0.9
    assert score.not_listed == 0
    assert outcomes.score[~outcomes.bad].mean() > 0.8


def test_one_problem_is_ranked_as_many_are() -> None:
    data = records()
    rows = data.features()
    for may_run in (flags(*ALL), flags("Gemm", NAIVE), flags(NAIVE)):
        for raw, row in zip(data.raw.tolist(), rows, strict=True):
            admission = model().admit(raw, row, may_run, flags(NAIVE))
            of_many = model().assess(
                row[None, :], admission.allowed[None, :], admission.last[None, :]
            )
            could_run = (admission.allowed | admission.last)[of_many.order[0]]
            alone = model().assess_one(row, admission)
            assert [answer.candidate for answer in alone] == of_many.order[0][could_run].tolist()
            np.testing.assert_allclose(
                [answer.good for answer in alone], of_many.good[0][could_run], rtol=1e-6
            )
            np.testing.assert_allclose(
                [answer.log_time for answer in alone], of_many.log_time[0][could_run], rtol=1e-9
            )


def test_a_solver_is_never_picked_where_it_was_never_listed() -> None:
    _, unseen = parts()
    outcomes, order = evaluate(model(), unseen, flags(*ALL), flags(NAIVE))
    is_1x1 = unseen.raw[:, 15] == 1
    winograd = model().candidates.index("Winograd")
    assert is_1x1.any()
    assert (order[is_1x1, 0] != winograd).all()
    assert (outcomes.pick[~is_1x1] == winograd).any()


def test_a_release_that_lacks_the_best_gets_the_next() -> None:
    _, unseen = parts()
    outcomes, _ = evaluate(model(), unseen, flags("Gemm", NAIVE), flags(NAIVE))
    assert (outcomes.pick != model().candidates.index("Winograd")).all()


def test_outside_the_training_range_naive_is_not_picked() -> None:
    small = ConvProblem("F", 1, 4, (3, 3), 1, (1, 1))
    row = feature_row(small, DEVICE)
    admission = model().admit(raw_numbers(small), row, flags(*ALL), flags(NAIVE))
    assert "outside" in admission.outside
    assert not admission.allowed[model().candidates.index(NAIVE)]
    inside = ConvProblem("F", 4, 12, (14, 14), 64, (1, 1))
    row = feature_row(inside, DEVICE)
    admission = model().admit(raw_numbers(inside), row, flags(*ALL), flags(NAIVE))
    assert not admission.outside
    assert admission.known
    cell = model().rules.cell(cell_key(raw_numbers(inside)))
    naive = model().candidates.index(NAIVE)
    assert admission.allowed[naive] == cell.winners[naive]


def test_naive_is_picked_where_it_wins() -> None:
    _, unseen = parts()
    naive = model().candidates.index(NAIVE)
    outcomes, _ = evaluate(model(), unseen, flags(*ALL), flags(NAIVE))
    wins = unseen.times.argmin(axis=1) == unseen.candidates.index(NAIVE)
    assert wins.any()
    assert (outcomes.pick[wins] == naive).mean() > 0.8


def test_a_kind_never_seen_is_not_known() -> None:
    grouped = ConvProblem("F", 4, 64, (14, 14), 64, (3, 3), padding=(1, 1), groups=2)
    row = feature_row(grouped, DEVICE)
    assert not model().admit(raw_numbers(grouped), row, flags(*ALL), flags(NAIVE)).known


def test_workers_do_not_change_the_model(tmp_path: Path) -> None:
    train, _ = parts()
    for workers in (1, 2):
        trained = RankingTrainer(SETTINGS, workers=workers).train({"F": train})
        save_ranking(tmp_path / str(workers), trained)
    for name in ("F.forests", "model.json", "feature_spec.json"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_a_bundle_answers_as_the_model_did(tmp_path: Path) -> None:
    save_ranking(tmp_path, {"F": model()})
    kept = RankingBundle(tmp_path).ranking("F")
    _, unseen = parts()
    before, _ = evaluate(model(), unseen, flags(*ALL), flags(NAIVE))
    after, _ = evaluate(kept, unseen, flags(*ALL), flags(NAIVE))
    np.testing.assert_array_equal(before.pick, after.pick)
    np.testing.assert_array_equal(before.score, after.score)


@pytest.mark.parametrize(
    ("field", "value"),
    [("feature_version", 0), ("features", ["a"]), ("judge_features", []), ("format", 99)],
)
def test_a_bundle_for_other_features_is_refused(tmp_path: Path, field: str, value: object) -> None:
    save_ranking(tmp_path, {"F": model()})
    spec = tmp_path / "feature_spec.json"
    content = json.loads(spec.read_text())
    spec.write_text(json.dumps({**content, field: value}))
    with pytest.raises(InputError, match="train it again") as caught:
        RankingBundle(tmp_path)
    assert field in str(caught.value)
    assert "feature_spec.json" in str(caught.value)


@pytest.mark.parametrize("content", ["", "{", "[]", "nonsense"])
def test_a_broken_bundle_is_named(tmp_path: Path, content: str) -> None:
    save_ranking(tmp_path, {"F": model()})
    (tmp_path / "model.json").write_text(content)
    with pytest.raises(InputError, match=r"model\.json"):
        RankingBundle(tmp_path)
    with pytest.raises(InputError, match="no model bundle"):
        RankingBundle(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("F", 5),
        ("F.candidates", 5),
        ("F.candidates", []),
        ("F.candidates", ["a"]),
        ("F.candidates", [1, 2, 3]),
        ("F.rules", {}),
        ("F.rules.cells", []),
        ("F.rules.cells", {"a": [1, 2, 3]}),
        ("F.rules.cells", {"0,0,0": [1, 2]}),
        ("F.rules.cells", {"0,0,0": ["a", "b", "c"]}),
        ("F.rules.ranges", 5),
        ("F.rules.ranges", {"2": ["a", "b"]}),
        ("F.rules.ranges", {"2": [[1], [2]]}),
        ("F.rules.ranges", {"2": [[1, 1], [2, 2]]}),
        ("F.rules.ranges", {"2": [[float("nan")] * 18] * 2}),
    ],
)
def test_a_bundle_of_other_content_is_refused(tmp_path: Path, path: str, value: object) -> None:
    save_ranking(tmp_path, {"F": model()})
    content = json.loads((tmp_path / "model.json").read_text())
    *parents, last = path.split(".")
    place = content
    for name in parents:
        place = place[name]
    place[last] = value
    (tmp_path / "model.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="F is damaged") as caught:
        RankingBundle(tmp_path).ranking("F")
    assert "model.json" in caught.value.where


@pytest.mark.parametrize("content", ["{}", "[" * 100_000])
def test_a_bundle_of_nothing_is_refused(tmp_path: Path, content: str) -> None:
    save_ranking(tmp_path, {"F": model()})
    (tmp_path / "model.json").write_text(content)
    with pytest.raises(InputError, match=r"model\.json"):
        RankingBundle(tmp_path)


def test_forests_of_others_are_refused(tmp_path: Path) -> None:
    save_ranking(tmp_path, {"F": model()})
    for forests in ({}, {"first": model().judge, "judge": model().first}):
        save_forests(tmp_path / "F.forests", forests)
        with pytest.raises(InputError, match="F is damaged"):
            RankingBundle(tmp_path).ranking("F")


def test_rare_solvers_are_left_out() -> None:
    data = records()
    times = data.times.copy()
    times[:, 2] = np.inf
    times[:3, 2] = 1e-6
    train = replace(data, times=times)
    trained = RankingTrainer(SETTINGS, workers=1).train({"F": train})
    assert len(trained["F"].candidates) == 2
