from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.baselines.hand_rules import HandRules
from foretune.miopen.baselines.nearest_neighbour import NearestNeighbour
from foretune.miopen.baselines.records import TrainableBaseline, winner
from foretune.miopen.baselines.rule_mask import RuleMask, group_kind
from foretune.miopen.baselines.usual_winner import UsualWinner

from .conftest import Records

PICKERS = [UsualWinner, NearestNeighbour, HandRules]


def conv1x1(direction: str = "F", channels: int = 64, **fields: Any) -> ConvProblem:
    return ConvProblem(direction, 8, channels, (28, 28), 96, (1, 1), **fields)


@pytest.mark.parametrize(
    ("make", "least_top1", "most_unlisted"),
    [(UsualWinner, 0.55, 0.13), (NearestNeighbour, 0.75, 0.03), (HandRules, 0.40, 0.18)],
)
def test_unseen_shapes_are_picked_as_well_as_measured_before(
    make: Callable[[], TrainableBaseline],
    least_top1: float,
    most_unlisted: float,
    mi300x: Records,
) -> None:
    rows = list(zip(mi300x.problems, mi300x.times, strict=True))
    # Batch sizes, types and directions of one shape stay on one side.
    shapes = sorted({problem.shape_key for problem in mi300x.problems}, key=repr)
    held_out = set(shapes[::8])
    train = [row for row in rows if row[0].shape_key not in held_out]
    test = [row for row in rows if row[0].shape_key in held_out]
    picker = make().fit([problem for problem, _ in train], [times for _, times in train])
    picks = picker.pick([problem for problem, _ in test])
    top1 = sum(pick == winner(times) for pick, (_, times) in zip(picks, test, strict=True))
    unlisted = sum(pick not in times for pick, (_, times) in zip(picks, test, strict=True))
    assert top1 / len(test) > least_top1
    assert unlisted / len(test) < most_unlisted


@pytest.mark.parametrize("make", PICKERS)
def test_nothing_alike_gets_no_answer(make: Callable[[], TrainableBaseline]) -> None:
    picker = make().fit([conv1x1()], [{"GemmFwd1x1_0_1": 1.0}])
    asked = [conv1x1("B"), conv1x1(), conv1x1(dtype="FP16"), conv1x1(layout="NHWC")]
    assert picker.pick(asked) == [None, "GemmFwd1x1_0_1", None, None]
    assert picker.pick([]) == []


def test_winner_is_the_fastest_that_was_measured() -> None:
    assert winner({"a": 2.0, "b": 0.5, "c": 0.0, "d": -1.0}) == "b"
    assert winner({"a": 0.0}) is None
    assert winner({}) is None


def test_mask_drops_only_where_there_is_enough_data() -> None:
    many = [conv1x1(channels=channels) for channels in range(1, 21)]
    three = ConvProblem("F", 8, 64, (28, 28), 96, (3, 3))
    times = [{"gemm": 1.0}] * 20 + [{"winograd": 1.0}]
    mask = RuleMask().fit([*many, three], times)
    assert mask.allowed(conv1x1()) == {"gemm"}
    assert mask.allowed(three) == {"gemm", "winograd"}
    assert mask.allowed(conv1x1("W")) == frozenset()
    assert RuleMask().fit([*many[1:], three], times[1:]).allowed(conv1x1()) == {"gemm", "winograd"}


def test_group_kinds() -> None:
    assert [group_kind(conv1x1(channels=32, groups=groups)) for groups in (1, 2, 32)] == [
        "one",
        "grouped",
        "depthwise",
    ]


def test_usual_winner_counts_wins_not_listings() -> None:
    problems = [conv1x1(channels=channels) for channels in (1, 2, 3)]
    times = [{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 2.0}, {"b": 1.0, "a": 9.0}]
    picker = UsualWinner().fit(problems, times)
    assert picker.wins_[("F", 2, "NCHW", "FP32")] == {"b": 2, "a": 1}
    assert picker.pick([conv1x1()]) == ["b"]


def test_usual_winner_passes_over_what_the_mask_drops() -> None:
    ones = [conv1x1(channels=channels) for channels in range(1, 41)]
    threes = [ConvProblem("F", 8, c, (28, 28), 96, (3, 3)) for c in range(1, 31)]
    picker = UsualWinner().fit([*ones, *threes], [{"gemm": 1.0}] * 40 + [{"winograd": 1.0}] * 30)
    assert picker.pick([ones[0], threes[0]]) == ["gemm", "winograd"]


def test_nearest_goes_by_ratios_of_sizes() -> None:
    problems = [conv1x1(channels=64), conv1x1(channels=1024)]
    picker = NearestNeighbour().fit(problems, [{"small": 1.0}, {"large": 1.0}])
    asked = [conv1x1(channels=channels) for channels in (8, 200, 300, 4096)]
    assert picker.pick(asked) == ["small", "small", "large", "large"]


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (conv1x1(), "GemmFwd1x1_0_1"),
        (conv1x1(layout="NHWC"), "ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC"),
        (ConvProblem("F", 8, 64, (28, 28), 96, (3, 3)), "ConvBinWinogradRxSf3x2"),
        (
            ConvProblem("F", 8, 64, (28, 28), 96, (3, 3), dtype="FP16"),
            "ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC",
        ),
        (ConvProblem("F", 8, 64, (28, 28), 96, (3, 3), groups=2), "ConvBinWinogradRxSf2x3"),
    ],
)
def test_hand_rules_take_the_first_that_is_there(problem: ConvProblem, expected: str) -> None:
    known = {
        "ConvDirectNaiveConvFwd": 1.0,
        "GemmFwdRest": 1.0,
        "GemmFwd1x1_0_1": 1.0,
        "ConvBinWinogradRxSf2x3": 1.0,
        "ConvBinWinogradRxSf3x2": 1.0,
        "ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC": 1.0,
    }
    assert HandRules().fit([problem], [known]).pick([problem]) == [expected]


def test_hand_rules_fall_back_on_what_is_listed_most() -> None:
    problems = [conv1x1(channels=channels) for channels in (1, 2)]
    picker = HandRules().fit(problems, [{"new": 1.0, "old": 2.0}, {"old": 1.0}])
    assert picker.pick([conv1x1()]) == ["old"]
