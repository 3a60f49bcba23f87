from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.devices import device_facts
from foretune.miopen.config_fit import LEAST_SEEN, fit_configs
from foretune.miopen.config_ranking import FOREST_FILE, TABLE_FILE, ConfigRanking
from foretune.miopen.config_scores import score_configs
from foretune.miopen.config_table import tuned_problems
from foretune.miopen.config_training import train_configs, train_tables
from foretune.miopen.find_db import FindItem, FindRecord
from foretune.miopen.keys import format_find_key, format_perf_key, parse_find_key
from foretune.miopen.perf_db import PerfRecord, write_perf_db
from foretune.predictor.boosting import TreeSettings
from foretune.predictor.features.conv import feature_row
from foretune.predictor.split import TRAIN_END, shape_position

pytest.importorskip("lightgbm")

MI300X = device_facts("gfx942")
SETTINGS = TreeSettings(rounds=8, leaves=7, feature_fraction=0.3, min_rows=5)


def train(records: list[PerfRecord], folder: Path, workers: int = 1) -> tuple[bytes, bytes]:
    train_tables(tuned_problems(records), MI300X, folder, workers=workers, settings=SETTINGS)
    return (folder / TABLE_FILE).read_bytes(), (folder / FOREST_FILE).read_bytes()


@pytest.fixture(scope="session")
def bundle(slice_of_mi300x: list[PerfRecord], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    train(slice_of_mi300x, folder)
    return folder


def test_the_same_records_give_the_same_files(
    slice_of_mi300x: list[PerfRecord], bundle: Path, tmp_path: Path
) -> None:
    first = (bundle / TABLE_FILE).read_bytes(), (bundle / FOREST_FILE).read_bytes()
    assert train(slice_of_mi300x, tmp_path, workers=2) == first


def test_held_out_shapes_are_not_learnt_from(
    slice_of_mi300x: list[PerfRecord], bundle: Path, tmp_path: Path
) -> None:
    changed = [
        replace(record, params=dict.fromkeys(record.params, "DeviceOfTheTest<1, 2>"))
        if shape_position(record.problem) >= TRAIN_END
        else record
        for record in slice_of_mi300x
    ]
    assert changed != slice_of_mi300x
    first = (bundle / TABLE_FILE).read_bytes(), (bundle / FOREST_FILE).read_bytes()
    assert train(changed, tmp_path) == first


def test_configs_are_ranked_better_than_by_habit(
    slice_of_mi300x: list[PerfRecord], miopen_db: Path, tmp_path: Path
) -> None:
    tables = tuned_problems(slice_of_mi300x)
    scores = train_tables(tables, MI300X, tmp_path, nets=miopen_db, settings=SETTINGS)
    backward = [s for s in scores if s.solver == "ConvHipImplicitGemmGroupBwdXdlops"]
    assert sum(s.problems for s in backward) > 50
    for name in ("top_1", "top_5", "top_10", "parameters"):
        model, usual = (
            sum(asdict(s)[prefix + name] * s.problems for s in backward)
            for prefix in ("", "usual_")
        )
        assert model > 1.1 * usual, name
    for score in scores:
        assert 0 <= score.top_1 <= score.top_5 <= score.top_10 <= 1
        assert set(score.by_parameter.values()) <= {
            v for v in score.by_parameter.values() if v <= 1
        }
        assert (score.net_problems > 0) == (score.net_top_1 is not None)
        assert score.net_problems == (score.problems if "Group" in score.solver else 0)


def test_only_configs_of_the_type_are_ranked_and_as_trained(
    slice_of_mi300x: list[PerfRecord], bundle: Path
) -> None:
    ranking = ConfigRanking(bundle)
    seen = Counter(
        (solver, record.problem.direction, record.problem.dtype, config)
        for record in slice_of_mi300x
        if shape_position(record.problem) < TRAIN_END
        for solver, config in record.params.items()
    )
    models = {
        (table.solver, table.direction): fit_configs(table, MI300X, SETTINGS)
        for table in tuned_problems(slice_of_mi300x)
    }
    answered = 0
    for record in slice_of_mi300x[::40]:
        problem = record.problem
        row = feature_row(problem, MI300X)
        for solver in record.params:
            ranked = ranking.rank(solver, problem, row)
            names = [config for config, _ in ranked]
            expected = {
                config
                for (*key, config), count in seen.items()
                if count >= LEAST_SEEN and key == [solver, problem.direction, problem.dtype]
            }
            assert set(names) == expected
            assert len(names) == len(expected)
            if not ranked:
                assert ranking.best(solver, problem, row) is None
                continue
            answered += 1
            assert sum(share for _, share in ranked) == pytest.approx(1)
            assert ranking.best(solver, problem, row) == names[0]
            model = models[solver, problem.direction]
            assert model is not None
            choices = model.by_type()[problem.dtype]
            assert set(choices.configs) == expected
            scores = choices.scores(row[None])[0]
            # The file keeps three decimals of what is usual.
            best = scores[choices.configs.index(names[0])]
            assert best == pytest.approx(scores.max(), abs=0.002)
    assert answered > 40


def test_strided_gradients_take_their_sizes_from_the_find_db() -> None:
    problems = [
        ConvProblem("W", 4, 8, (size, size), 16, (3, 3), stride=(2, 2), padding=(1, 1))
        for size in (56, 55)
    ]
    (key,) = {format_perf_key(problem) for problem in problems}
    record = PerfRecord(key, {"ConvAsmBwdWrW3x3": "1,0,16,1,2,1"})
    item = FindItem("ConvAsmBwdWrW3x3", 1.0, 0, "miopenConvolutionBwdWeightsAlgoDirect")
    found = [FindRecord(format_find_key(problem), (item,)) for problem in problems]

    def widths(found: list[FindRecord]) -> list[float]:
        (table,) = tuned_problems([record], found)
        keys = iter(table.held_out_keys)
        if not table.is_training[0]:
            assert parse_find_key(next(keys)).direction == "W"
        return [line[10] for line in table.raw.tolist()]

    assert widths(found) == [56, 55]
    assert widths(found[:1]) == [56]
    assert widths([]) == [55]


def test_a_solver_with_one_config_needs_no_trees(tmp_path: Path) -> None:
    problems = [
        ConvProblem("F", batch, 8, (28, 28), 16, (3, 3), padding=(1, 1)) for batch in (1, 2, 4)
    ]
    shape = iter(range(8, 200, 8))
    while shape_position(problems[0]) >= TRAIN_END:
        channels = next(shape)
        problems = [replace(problem, in_channels=channels) for problem in problems]
    records = [PerfRecord(format_perf_key(p), {"ConvAsm3x3U": "0,8,7"}) for p in problems]
    train_tables(tuned_problems(records), MI300X, tmp_path)
    row = feature_row(problems[0], MI300X)
    assert ConfigRanking(tmp_path).rank("ConvAsm3x3U", problems[0], row) == [("0,8,7", 1.0)]
    with pytest.raises(InputError, match="nothing to learn"):
        train_tables(tuned_problems(records[:2]), MI300X, tmp_path)


def test_nothing_held_out_gives_no_scores() -> None:
    (table,) = tuned_problems(
        [
            PerfRecord(format_perf_key(ConvProblem("F", n, 8, (28, 28), 16, (1, 1))), {"A": "1"})
            for n in range(1, 9)
        ]
    )
    learnt = replace(table, position=table.position * 0)
    model = fit_configs(learnt, MI300X)
    assert model is not None
    assert score_configs(learnt, model.by_type(), MI300X) == []


def test_what_cannot_be_read_costs_itself() -> None:
    good = PerfRecord(
        format_perf_key(ConvProblem("F", 4, 8, (28, 28), 16, (1, 1))), {"ConvAsm1x1U": "1,8"}
    )
    bad_config = replace(good, params={"ConvAsm1x1U": "<1,,"})
    bad_key = replace(good, key=good.key.replace("FP32", "FP99"))
    told: list[tuple[PerfRecord, str]] = []
    (table,) = tuned_problems([bad_key, good, bad_config], report=lambda *issue: told.append(issue))
    assert table.configs == ["1,8"]
    assert [record for record, _ in told] == [bad_key, bad_config]
    assert all("the line is skipped" in reason for _, reason in told)


def test_a_folder_of_databases_is_learnt_from(
    slice_of_mi300x: list[PerfRecord], tmp_path: Path
) -> None:
    records = [
        replace(record, params={"ConvBinWinogradRxSf3x2": config})
        for record in slice_of_mi300x
        if (config := record.params.get("ConvBinWinogradRxSf3x2"))
    ]
    folder, out = tmp_path / "db", tmp_path / "out"
    folder.mkdir()
    write_perf_db(folder / "gfx942130.db", records)
    # Not the usual device of the arch, so it isn't the one that is learnt from.
    write_perf_db(folder / "gfx94226.db.txt", records[:1])
    steps: list[tuple[str, int, int]] = []
    metrics = train_configs(
        folder,
        "gfx942",
        out,
        workers=1,
        settings=SETTINGS,
        on_progress=lambda *step: steps.append(step),
    )
    assert metrics["perf_db"] == "gfx942130.db"
    assert metrics["skipped"] == 0
    assert {score["solver"] for score in metrics["scores"]} == {"ConvBinWinogradRxSf3x2"}
    assert steps[0][1] == 0
    assert steps[-1][1] == steps[-1][2] == len(steps) - 1 == len(ConfigRanking(out).models)
    held_out = sum(score["problems"] for score in metrics["scores"])
    half = train_configs(folder, "gfx942", out, workers=1, share=0.5, settings=SETTINGS)
    assert 0.2 * held_out < sum(score["problems"] for score in half["scores"]) < 0.8 * held_out


def test_an_arch_without_perf_db_has_no_ranking(tmp_path: Path) -> None:
    assert train_configs(tmp_path, "gfx908", tmp_path / "out") == {}
    assert not (tmp_path / "out").exists()
