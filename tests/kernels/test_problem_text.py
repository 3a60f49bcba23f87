"""Problems as text: the same back, and one text for one problem."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.problem_text import expand_problems, format_problem, parse_problem
from foretune.kernels.suites import read_suite, suite_names
from tests.kernels.conv_strategies import conv_problems

TEXT = "conv direction=F batch=1 in_channels=3 in_size=8x8 out_channels=4 filter_size=3x3"


@settings(deadline=None, max_examples=150)
@given(conv_problems())
def test_text_round_trips(problem: ConvProblem) -> None:
    text = format_problem(problem)
    assert parse_problem(text) == problem
    assert format_problem(parse_problem(text)) == text


@settings(deadline=None, max_examples=60)
@given(conv_problems(), conv_problems(), st.randoms())
def test_equal_problems_have_equal_texts(
    first: ConvProblem, second: ConvProblem, random: Any
) -> None:
    assert (format_problem(first) == format_problem(second)) == (first == second)
    operation, *words = format_problem(first).split()
    random.shuffle(words)
    assert format_problem(parse_problem(" ".join([operation, *words]))) == format_problem(first)


def test_what_is_left_out_is_filled_in() -> None:
    assert parse_problem(TEXT) == ConvProblem("F", 1, 3, (8, 8), 4, (3, 3))


def test_lines_expand_to_products() -> None:
    problems = expand_problems(TEXT.replace("=F", "=F|W") + " stride=1x1|2x2 layout=NHWC")
    plain = ConvProblem("F", 1, 3, (8, 8), 4, (3, 3), layout="NHWC")
    strided = ConvProblem("F", 1, 3, (8, 8), 4, (3, 3), (2, 2), layout="NHWC")
    assert problems[:2] == [plain, strided]
    assert problems[2:] == [replace(plain, direction="W"), replace(strided, direction="W")]
    with pytest.raises(InputError, match="expected one problem, got 2"):
        parse_problem(TEXT.replace("=F", "=F|W"))


@settings(deadline=None, max_examples=200)
@given(st.one_of(st.text(), st.text("conv =|x0123456789FBW_size\t", max_size=60)))
def test_anything_else_is_an_input_error(text: str) -> None:
    try:
        assert expand_problems(text)
    except InputError:  # what every caller expects
        return


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no operation is called ''"),
        ("knitting a=1", "no operation is called 'knitting'"),
        ("runtime a=1", "no operation is called 'runtime'"),
        ("conv direction=F", "missing: batch, in_channels, in_size, out_channels, filter_size"),
        (f"{TEXT} colour=3", "expected FIELD=value, got 'colour=3'"),
        (f"{TEXT} bias", "expected FIELD=value, got 'bias'"),
        (f"{TEXT} batch=2", "batch: is given twice"),
        (TEXT.replace("8x8", "8xy"), "in_size: can't be read: '8xy'"),
        (TEXT.replace("=F", "=Q"), "direction: expected F, B or W, got 'Q'"),
        (f"{TEXT} groups=2", "in_channels: 3 channels can't be divided into 2 groups"),
    ],
)
def test_what_is_wrong_is_named(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_problem(text)
    assert said in str(caught.value)


def test_suites_hold_enough_problems() -> None:
    sizes = {name: len(read_suite(name)) for name in suite_names()}
    assert sizes["gpu"] >= 60
    assert sizes["cpu"] >= 60
    assert sizes["varied"] >= 120
    assert min(sizes["resnet50"], sizes["mobilenet"], sizes["unet"]) >= 60


@pytest.mark.parametrize("name", ["gpu", "resnet50", "mobilenet", "unet", "varied"])
def test_suites_hold_all_directions_types_and_layouts(name: str) -> None:
    problems = [problem for problem in read_suite(name) if isinstance(problem, ConvProblem)]
    assert {problem.direction for problem in problems} == {"F", "B", "W"}
    kinds = {(problem.dtype, problem.layout) for problem in problems}
    assert {("FP32", "NCHW"), ("FP16", "NHWC")} <= kinds


def test_resnet50_is_whole() -> None:
    forward = [
        problem
        for problem in read_suite("resnet50")
        if isinstance(problem, ConvProblem)
        and (problem.direction, problem.dtype, problem.layout) == ("F", "FP32", "NCHW")
    ]
    # 53 convolutions, 23 of them different.
    assert len(forward) == 23
    assert max(problem.out_channels for problem in forward) == 2048


def test_suites_are_joined_and_files_read(tmp_path: Any) -> None:
    both = read_suite("cpu,gpu")
    assert len(both) == len(read_suite("cpu")) + len(read_suite("gpu"))
    path = tmp_path / "mine.txt"
    path.write_text(f"# two\n\n{TEXT}\n{TEXT}\n{TEXT} dtype=FP16\n")
    assert len(read_suite(path)) == 2
    path.write_text(f"{TEXT}\nnothing\n")
    with pytest.raises(InputError, match="line 2"):
        read_suite(path)
    path.write_text("# nothing\n")
    with pytest.raises(InputError, match="holds no problem"):
        read_suite(path)
    with pytest.raises(InputError, match="no suite is called so"):
        read_suite("resnet51")
