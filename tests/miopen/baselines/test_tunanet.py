from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.baselines.records import winner
from foretune.miopen.baselines.tunanet import TunaNet, runs_direction

from .conftest import Records, sample_find_db


def conv(direction: str = "F", **fields: Any) -> ConvProblem:
    return ConvProblem(direction, 8, 64, (28, 28), 96, (3, 3), padding=(1, 1), **fields)


def top1(net: TunaNet, records: Records, layout: str = "NCHW", most: int = 3000) -> float:
    """Share of records with a supported problem whose fastest listed solver is picked."""
    asked = [
        (problem, best)
        for problem, times in zip(records.problems, records.times, strict=True)
        if problem.layout == layout and net.supports(problem) and (best := winner(times))
    ][:: max(1, len(records.problems) // (2 * most))][:most]
    picks = net.pick([problem for problem, _ in asked])
    return sum(pick == best for pick, (_, best) in zip(picks, asked, strict=True)) / len(asked)


@pytest.mark.parametrize(("folder", "floor"), [("2024", 0.72), (".", 0.70)])
def test_mi300x_winners_are_found_as_often_as_measured_before(
    folder: str, floor: float, databases: Path, mi300x: Records
) -> None:
    # About 76% and 74%. A wrong feature, scale or code costs tens of points.
    assert top1(TunaNet.load(databases / folder, "gfx942"), mi300x) > floor


def test_mi300x_net_knows_nhwc(databases: Path, mi300x: Records) -> None:
    assert top1(TunaNet.load(databases, "gfx942"), mi300x, "NHWC") > 0.5


@pytest.mark.parametrize(
    ("arch", "name", "floor"), [("gfx90a", "gfx90a6e", 0.33), ("gfx908", "gfx90878", 0.095)]
)
def test_older_cards_winners_are_found_as_often_as_measured_before(
    arch: str, name: str, floor: float, databases: Path, tmp_path: Path
) -> None:
    # About 37% and 11% of the files' first parts, 45% and 17% of all: these nets know few of the
    # solvers that these databases list.
    records = sample_find_db(databases / f"{name}.HIP.fdb.txt.bz2", 15, tmp_path)
    assert top1(TunaNet.load(databases, arch), records) > floor


def test_features_matter_one_by_one(databases: Path) -> None:
    """Each size reaches the net: changing it changes the logits."""
    net = TunaNet.load(databases, "gfx942")
    base = ConvProblem("F", 8, 64, (28, 30), 96, (3, 5), padding=(1, 2))
    others = [
        ConvProblem("B", 8, 64, (28, 30), 96, (3, 5), padding=(1, 2)),
        ConvProblem("F", 9, 64, (28, 30), 96, (3, 5), padding=(1, 2)),
        ConvProblem("F", 8, 66, (28, 30), 96, (3, 5), padding=(1, 2)),
        ConvProblem("F", 8, 64, (28, 30), 98, (3, 5), padding=(1, 2)),
        ConvProblem("F", 8, 64, (28, 30), 96, (3, 5), padding=(1, 2), groups=2),
        ConvProblem("F", 8, 64, (28, 30), 96, (3, 5), padding=(1, 2), dtype="BF16"),
        ConvProblem("F", 8, 64, (28, 30), 96, (3, 5), padding=(1, 2), layout="NHWC"),
    ]
    logits = net.rank([base, *others])
    assert logits.shape == (8, 23)
    assert (np.abs(logits[1:] - logits[0]).max(axis=1) > 1e-4).all()


def test_one_by_one_is_the_same_as_together(databases: Path, mi300x: Records) -> None:
    net = TunaNet.load(databases, "gfx942")
    problems = [problem for problem in mi300x.problems if net.supports(problem)][:40]
    together = net.rank(problems)
    for row, problem in zip(together, problems, strict=True):
        np.testing.assert_allclose(net.rank([problem])[0], row, rtol=1e-4, atol=1e-4)


def test_what_each_net_is_asked(databases: Path) -> None:
    mi300x = TunaNet.load(databases, "gfx942")
    older = TunaNet.load(databases / "2024", "gfx942")
    mi200 = TunaNet.load(databases, "gfx90a")
    mi100 = TunaNet.load(databases, "gfx908")
    nets = (mi300x, older, mi200, mi100)

    def asked(problem: ConvProblem) -> list[bool]:
        return [net.supports(problem) for net in nets]

    assert asked(conv()) == [True, True, True, True]
    assert asked(conv(layout="NHWC")) == [True, False, False, False]
    assert asked(conv(groups=2)) == [True, True, True, False]
    assert asked(conv(dilation=(2, 2))) == [True, True, True, False]
    assert asked(conv(dilation=(2, 1))) == [False] * 4
    assert asked(conv(stride=(2, 1))) == [False] * 4
    assert asked(conv(dtype="INT8")) == [False] * 4
    assert asked(conv(bias=1)) == [False, False, False, True]
    assert asked(ConvProblem("F", 8, 64, (28, 28), 96, (3, 1))) == [True, True, True, False]
    assert asked(ConvProblem("F", 8, 64, (4, 28, 28), 96, (3, 3, 3))) == [False] * 4


def test_pick_walks_past_what_cannot_run(databases: Path) -> None:
    net = TunaNet.load(databases, "gfx942")
    problem = conv()
    (first,) = net.pick([problem])
    assert first is not None
    order = [net.solvers[column] for column in np.argsort(-net.rank([problem])[0])]
    expected = [solver for solver in order if runs_direction(solver, "F")]
    assert first == expected[0]
    assert net.pick([problem], [set(expected) - {first}]) == [expected[1]]
    assert net.pick([problem], [{"GemmBwdRest"}]) == [None]


def test_pick_keeps_the_order_and_leaves_gaps(databases: Path) -> None:
    net = TunaNet.load(databases, "gfx942")
    unsupported = conv(stride=(2, 1))
    picks = net.pick([conv("W"), unsupported, conv("B")])
    assert picks[1] is None
    assert [picks[0], picks[2]] == [*net.pick([conv("W")]), *net.pick([conv("B")])]
    assert net.pick([unsupported]) == [None]
    assert net.pick([]) == []


def test_every_class_has_a_direction(databases: Path) -> None:
    for arch in ("gfx908", "gfx90a", "gfx942"):
        net = TunaNet.load(databases, arch)
        for solver in net.solvers:
            count = sum(runs_direction(solver, direction) for direction in "FBW")
            assert count == (
                3 if "Winograd" in solver and "WrW" not in solver else 2 if solver == "fft" else 1
            )


def test_missing_or_foreign_metadata_is_named(databases: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gfx950_metadata"):
        TunaNet.load(databases, "gfx950")
    shutil.copy(databases / "gfx942.tn.model", tmp_path)
    path = tmp_path / "gfx942_metadata.tn.model"
    metadata = json.loads((databases / path.name).read_text())
    path.write_text(json.dumps({**metadata, "encodings": {}}))
    with pytest.raises(InputError, match="not TunaNet's metadata"):
        TunaNet.load(tmp_path, "gfx942")
    metadata["conv_params_used_as_features"][0] = "Colour"
    for part in metadata["stats"].values():
        for values in part["features"].values():
            values["Colour"] = 1.0
    path.write_text(json.dumps(metadata))
    with pytest.raises(InputError, match="unknown inputs: Colour"):
        TunaNet.load(tmp_path, "gfx942")
