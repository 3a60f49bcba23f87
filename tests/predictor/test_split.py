"""The split of shapes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.kernels.conv.problem import ConvProblem
from foretune.predictor.split import CALIBRATE_END, TRAIN_END, part_of, shape_position
from tests.strategies import problems


@settings(max_examples=100, deadline=None)
@given(
    problems(clamped=False),
    st.sampled_from("FBW"),
    st.integers(1, 512),
    st.sampled_from(["FP32", "FP16"]),
)
def test_a_shape_stays_on_one_side(
    problem: ConvProblem, direction: str, batch: int, dtype: str
) -> None:
    other = replace(
        problem, direction=direction, batch=batch, dtype=dtype, weight_dtype="", out_dtype=""
    )
    assert shape_position(other) == shape_position(problem)


@settings(max_examples=100, deadline=None)
@given(problems(clamped=False))
def test_another_shape_has_another_place(problem: ConvProblem) -> None:
    wider = replace(problem, in_channels=problem.in_channels + problem.groups, out_size=())
    assert shape_position(wider) != shape_position(problem)


def test_parts_have_the_stated_shares() -> None:
    positions = [
        shape_position(ConvProblem("F", 1, channels, (size, size), 64, (1, 1)))
        for channels in range(1, 101)
        for size in range(1, 41)
    ]
    parts = [part_of(position) for position in positions]
    assert abs(parts.count("train") / 4000 - TRAIN_END) < 0.03
    assert abs(parts.count("calibrate") / 4000 - (CALIBRATE_END - TRAIN_END)) < 0.02
