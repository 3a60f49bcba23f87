"""Database keys name problems and come back the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.keys import (
    format_find_key,
    format_perf_key,
    is_perf_key_exact,
    parse_find_key,
    parse_perf_key,
)

from ..strategies import problems

KEY = "64-28-28-3x3-3-56-56-32-1x1-2x2-1x1-0-NCHW-FP16-B"
PERF_KEY = "2x64x28x28x1x3x3x1x3x32x1x1x0x2x2x0x1x1x0x0x1xNCHWxFP16xB"


@given(problems())
def test_a_find_key_says_all_of_a_problem(problem: ConvProblem) -> None:
    key = format_find_key(problem)
    assert parse_find_key(key) == problem
    assert format_find_key(parse_find_key(key)) == key


@given(problems(casts=False, clamped=False, directions="F"))
def test_a_forward_perf_key_says_all_but_the_other_layouts(problem: ConvProblem) -> None:
    found = parse_perf_key(format_perf_key(problem))
    assert found == replace(problem, weight_layout=problem.layout, out_layout=problem.layout)
    assert is_perf_key_exact(problem)


@given(problems(casts=False, clamped=False, uniform=True, directions="BW"))
def test_a_backward_perf_key_gives_the_smallest_x(problem: ConvProblem) -> None:
    key = format_perf_key(problem)
    found = parse_perf_key(key)
    assert format_perf_key(found) == key
    assert found.out_size == problem.out_size
    assert all(a <= b for a, b in zip(found.in_size, problem.in_size, strict=True))
    assert replace(problem, in_size=found.in_size) == found
    if is_perf_key_exact(problem):
        assert found == problem


def test_b_and_w_are_swapped_and_f_is_not() -> None:
    problem = parse_find_key("64-28-28-3x3-3-56-56-32-1x1-2x2-1x1-0-NHWC-NCHW-CHWN-INT8FP16INT32-B")
    assert (problem.in_channels, problem.in_size, problem.out_channels) == (3, (56, 56), 64)
    assert (problem.layout, problem.weight_layout, problem.out_layout) == ("CHWN", "NCHW", "NHWC")
    assert (problem.dtype, problem.weight_dtype, problem.out_dtype) == ("INT32", "FP16", "INT8")
    forward = parse_find_key("3-56-56-3x3-64-28-28-32-1x1-2x2-1x1-0-NCHW-INT8INT8INT32-F")
    assert (forward.in_channels, forward.in_size, forward.out_dtype) == (3, (56, 56), "INT32")


def test_layouts_that_are_alike_are_written_once_only_for_the_usual_ones() -> None:
    usual = ConvProblem("F", 1, 2, (4, 4, 4), 2, (1, 1, 1))
    assert "-0-NCDHW-FP32-F" in format_find_key(usual)
    other = ConvProblem("F", 1, 2, (4, 4), 2, (1, 1), layout="NHWC")
    assert "-0-NHWC-NHWC-NHWC-FP32-F" in format_find_key(other)


def test_options_come_after_the_direction() -> None:
    problem = ConvProblem(
        "W", 1, 4, (4, 4), 4, (1, 1), groups=2, cast="FP8", weight_cast="BF8", out_cast="FP16"
    )
    assert format_find_key(problem).endswith("-W_g2_ciFP16_cwBF8_coFP8")


def test_a_filter_larger_than_the_input_is_read() -> None:
    problem = parse_find_key("1-2-2-5x5-1-1-1-1-0x0-1x1-1x1-0-NCHW-FP32-F")
    assert problem.out_size == (1, 1)


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("", "got 1"),
        ("a" + KEY[2:], "field 1 (C)"),
        (KEY.replace("3x3", "3x3x"), "field 4 (YxX)"),
        (KEY.replace("3x3", "3"), "field 4 (YxX)"),
        (KEY.replace("-32-", "--32-"), "got 16"),
        (KEY.replace("1x1-2x2", "1x-2x2"), "field 9 (pads)"),
        (KEY.replace("-0-NCHW", "-b-NCHW"), "field 12 (bias)"),
        (KEY.replace("NCHW", "N1HW"), "field 13 (layout)"),
        (KEY.replace("NCHW", "NCXY"), "layout"),
        (KEY.replace("FP16", "FP17"), "data type"),
        (KEY.replace("-B", "-X"), "(direction)"),
        (KEY + "_h2", "(direction)"),
        (KEY + "_g0", "groups"),
        (KEY + "_g5", "channels"),
        (KEY.replace("56-56", "57-90"), "out_size"),
        (KEY.replace("-32-", f"-{'9' * 5000}-"), "field 8 (N)"),
        (KEY.replace("-32-", "-9999999999-"), "batch"),
        (KEY.replace("2x2", "0x2"), "stride"),
        ("1-8-8-8-3x3x3-2-8-8-8-1-1x1x1-1x1x1-1x1-0-NCDHW-FP32-F", "field 13 (dilations)"),
        (KEY.replace("64", "\u0664"), "field 1 (C)"),
        (KEY + "\n", "(direction)"),
    ],
)
def test_a_wrong_find_key_is_told_by_field(key: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_find_key(key)
    assert field in str(caught.value)


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("", "got 1"),
        (PERF_KEY.replace("2x64", "4x64"), "spatial_dim"),
        (PERF_KEY.replace("x28x28x1x", "x28x28x2x"), "2-D key"),
        (PERF_KEY.replace("x64x", "xax"), "field 2 (in_channels)"),
        (PERF_KEY.replace("NCHW", "N2HW"), "field 22 (layout)"),
        (PERF_KEY.replace("FP16", "FP99"), "data type"),
        (PERF_KEY[:-1] + "Q", "field 24 (direction)"),
        (PERF_KEY.replace("x0x2x2x", "x0x0x2x"), "stride"),
        (PERF_KEY.replace("x0x2x2x", "x0x0x2x")[:-1] + "F", "stride"),
    ],
)
def test_a_wrong_perf_key_is_told_by_field(key: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_perf_key(key)
    assert field in str(caught.value)


@given(st.text(alphabet="0123456789x-NCHWFPBG_g", max_size=80), st.integers(0, 60))
def test_broken_keys_are_only_ever_input_errors(noise: str, position: int) -> None:
    for parse, key in ((parse_find_key, KEY), (parse_perf_key, PERF_KEY)):
        text = key[:position] + noise + key[position:]
        try:
            problem = parse(text)
        except InputError:
            continue
        assert isinstance(problem, ConvProblem)


@pytest.mark.parametrize(
    ("name", "inexact"), [("gfx942130.db.txt", 21_559), ("gfx90a68.db.txt", 18_190)]
)
def test_every_shipped_perf_key_comes_back(
    plain_database: Callable[[str], Path], name: str, inexact: int
) -> None:
    count = 0
    with plain_database(name).open() as file:
        for line in file:
            key = line.partition("=")[0]
            problem = parse_perf_key(key)
            assert format_perf_key(problem) == key
            count += not is_perf_key_exact(problem)
    assert count == inexact
