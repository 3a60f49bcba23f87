"""Driver lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.driver import (
    format_driver_line,
    parse_driver_line,
    parse_problem_line,
)

from ..strategies import DRIVER_TYPES, problems

KEY = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F"


def one(arguments: str) -> ConvProblem:
    (problem,) = parse_driver_line(f"MIOpenDriver conv -F 1 {arguments}")
    return problem


@st.composite
def driver_problems(draw: st.DrawFn) -> ConvProblem:
    """Problems for which the driver has flags: one type for all tensors, layouts may differ."""
    problem = draw(problems(dtypes=DRIVER_TYPES, uniform=True, clamped=False, biases=False))
    layouts = ("NCHW", "NHWC", "CHWN", "NCHWc") if problem.ndim == 2 else ("NCDHW", "NDHWC")
    fields = {
        name: draw(st.sampled_from(layouts)) for name in ("layout", "weight_layout", "out_layout")
    }
    return ConvProblem(**(vars(problem) | fields))


@given(driver_problems())
def test_a_driver_line_says_all_of_a_problem(problem: ConvProblem) -> None:
    line = format_driver_line(problem)
    assert parse_driver_line(line) == [problem]
    assert parse_problem_line(f"MIOPEN_FIND_MODE=1 /opt/rocm/bin/{line[6:]}") == [problem]


def test_the_log_order_of_flags() -> None:
    line = (
        "./bin/MIOpenDriver convfp16 -n 32 -c 3 -H 224 -W 224 -k 24 -y 3 -x 3 -p 1 -q 1 -u 2 -v 2 "
        "-l 1 -j 1 --in_layout NHWC --fil_layout NHWC --out_layout NHWC -m conv -g 1 -F 1 -t 1"
    )
    (problem,) = parse_driver_line(f"MIOpen(HIP): Command [LogCmdConvolution] {line} -S 85")
    assert format_driver_line(problem) == line
    assert (problem.dtype, problem.stride, problem.padding) == ("FP16", (2, 2), (1, 1))
    three = (
        "./bin/MIOpenDriver conv -n 2 -c 4 --in_d 5 -H 6 -W 7 -k 8 --fil_d 1 -y 2 -x 3 --pad_d 1 "
        "-p 2 -q 3 --conv_stride_d 1 -u 2 -v 3 --dilation_d 1 -l 2 -j 3 --spatial_dim 3 "
        "-m conv -g 2 -F 4 -t 1"
    )
    (problem,) = parse_driver_line(three)
    assert format_driver_line(problem) == three
    assert (problem.in_size, problem.stride, problem.dilation) == ((5, 6, 7), (1, 2, 3), (1, 2, 3))


def test_defaults_are_those_of_the_driver() -> None:
    problems = parse_driver_line("MIOpenDriver conv")
    assert [problem.direction for problem in problems] == ["F", "B", "W"]
    assert problems[0] == ConvProblem("F", 100, 3, (32, 32), 32, (3, 3))
    assert one("-_ 3") == ConvProblem("F", 100, 3, (32, 32, 32), 32, (3, 3, 3))


@pytest.mark.parametrize(
    ("forward", "directions"),
    [(0, "FBW"), (1, "F"), (2, "B"), (3, "FB"), (4, "W"), (5, "FW"), (6, "BW"), (7, "FBW")],
)
def test_forw_is_a_sum(forward: int, directions: str) -> None:
    problems = parse_driver_line(f"MIOpenDriver convbfp16 --forw {forward}")
    assert "".join(problem.direction for problem in problems) == directions


def test_all_forms_of_a_flag() -> None:
    wanted = one("-n 7")
    for form in ("-n7", "--batchsize 7", "--batchsize=7", "-n 5 -n 7", "'-n' \"7\"", "-n +7"):
        assert one(form) == wanted
    assert one("-! 9 -@ 1 -# 2 -$ 3 -^ 4 -_ 3") == one(
        "--in_d 9 --fil_d 1 --conv_stride_d 2 --pad_d 3 --dilation_d 4 --spatial_dim 3"
    )


def test_flags_that_change_nothing() -> None:
    extra = "-i 3 -V 0 -C /a -t 1 -w 1 -s 1 -S ConvAsm1x1U -P 0 -o 1 -d a -e b -a c -D d -G 1 -r 0"
    assert one(f"{extra} -b 1 --solution -1") == one("")


def test_layouts_types_and_groups() -> None:
    problem = one("-I NHWC -f CHWN -O NCHW -U fp8 -R bf8 -T fp16 -g 0")
    assert (problem.layout, problem.weight_layout, problem.out_layout) == ("NHWC", "CHWN", "NCHW")
    assert (problem.cast, problem.weight_cast, problem.out_cast) == ("FP8", "BF8", "FP16")
    assert problem.groups == 1
    assert one("-c 4 -Z 1 -L 4").layout == "NCHWc"
    assert one("-c 4 -k 8 -g 4").groups == 4
    assert parse_driver_line("MIOpenDriver convint8 -F 1")[0].out_dtype == "INT8"


def test_pad_modes_do_what_the_driver_does() -> None:
    assert one("-z valid -p 3 -q 3").padding == (0, 0)
    assert one("-z same -y 5 -x 3 -p 9").padding == (2, 1)
    # 32 = 10 * 3 + 2: the driver pads by (5 - 2) // 2, and the output is smaller than 32 / 3.
    assert one("-z same -y 5 -u 3").padding == (1, 1)
    assert one("-z same -H 33 -y 5 -u 3").padding == (1, 1)
    assert one("-z same -y 1 -u 2").padding == (0, 1)
    assert one("-z same -l 2 -p 1").padding == (1, 0)
    assert one("-z same -l 2 -y 1 -x 1 -p 1").padding == (0, 0)


@pytest.mark.parametrize("direction", [1, 2, 4])
def test_transposed_is_the_other_direction(direction: int) -> None:
    line = (
        "MIOpenDriver convfp16 -m trans -n 2 -c 8 -H 7 -W 9 -k 16 -y 3 -x 3 -u 2 -v 2 -p 1 -q 1 "
        f"-Y 1 -X 0 -g 4 -I NHWC -U fp8 -F {direction}"
    )
    (problem,) = parse_driver_line(line)
    assert problem.direction == {1: "B", 2: "F", 4: "W"}[direction]
    assert (problem.in_channels, problem.out_channels) == (16, 8)
    assert (problem.in_size, problem.out_size) == ((14, 17), (7, 9))
    assert (problem.layout, problem.out_layout) == ("NCHW", "NHWC")
    assert (problem.cast, problem.out_cast) == ("", "FP8")


@given(problems(clamped=False, uniform=True, casts=False, biases=False, dtypes=("FP32",)))
def test_a_transposed_line_undoes_a_convolution(problem: ConvProblem) -> None:
    extra = [
        size - ((out - 1) * step + dil * (fil - 1) + 1 - 2 * pad)
        for size, out, step, dil, fil, pad in zip(
            problem.in_size,
            problem.out_size,
            problem.stride,
            problem.dilation,
            problem.filter_size,
            problem.padding,
            strict=True,
        )
    ]
    words = [f"-c {problem.out_channels} -k {problem.in_channels} -n {problem.batch}"]
    words.append(f"-_ {problem.ndim} -g {problem.groups} -I{problem.out_layout}")
    words.append(f"-f{problem.weight_layout} -O {problem.layout}")
    names = {
        "in": problem.out_size,
        "fil": problem.filter_size,
        "conv_stride": problem.stride,
        "pad": problem.padding,
        "dilation": problem.dilation,
        "trans_output_pad": extra,
    }
    for name, values in names.items():
        axes = zip("dhw"[-problem.ndim :], values, strict=True)
        words += [f"--{name}_{axis} {value}" for axis, value in axes]
    found = parse_driver_line(f"MIOpenDriver conv -m trans {' '.join(words)}")
    assert [other.direction for other in found] == ["B", "F", "W"]
    for other in found:
        assert other == ConvProblem(**(vars(problem) | {"direction": other.direction}))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "expected MIOpenDriver"),
        ("MIOpenDriver", "expected MIOpenDriver"),
        ("MIOpenDriver pool -n 1", "'pool'"),
        ("MIOpenDriver convfp64 -n 1", "'convfp64'"),
        ("MIOpenDriver conv -Q 1", "-Q: unknown flag"),
        ("MIOpenDriver conv --batch 1", "--batch: unknown flag"),
        ("MIOpenDriver conv -n", "-n: the value is missing"),
        ("MIOpenDriver conv --in_h", "--in_h: the value is missing"),
        ("MIOpenDriver conv -n -c 3", "-n: expected a whole number, got '-c'"),
        ("MIOpenDriver conv --in_h=3.5", "--in_h: expected a whole number"),
        ("MIOpenDriver conv --in_h=", "--in_h: expected a whole number"),
        ("MIOpenDriver conv -n " + "9" * 5000, "-n: expected a whole number"),
        ("MIOpenDriver conv 32", "expected a flag, got '32'"),
        ("MIOpenDriver conv - 32", "expected a flag, got '-'"),
        ("MIOpenDriver conv -n '32", "No closing quotation"),
        ("MIOpenDriver conv -F 8", "-F: expected 0 for all"),
        ("MIOpenDriver conv -F -1", "-F: expected 0 for all"),
        ("MIOpenDriver conv -_ 4", "-_: expected 2 or 3"),
        ("MIOpenDriver conv -m depthwise", "-m: expected conv or trans"),
        ("MIOpenDriver conv -z full", "-z: expected default, same or valid"),
        ("MIOpenDriver conv -u 0 -z same", "-u: expected at least 1"),
        ("MIOpenDriver conv -m trans -Y 1", "-Y: expected 0 to 0"),
        ("MIOpenDriver conv -m trans -H 1 -p 2", "-p: expected a padding"),
        ("MIOpenDriver conv -Z 2", "-Z: expected 0 or 1"),
        ("MIOpenDriver conv -U fp9", "-U: expected a data type"),
        ("MIOpenDriver conv -I NCXY", "layout"),
        ("MIOpenDriver conv -g 2", "in_channels"),
        ("MIOpenDriver conv -n 0", "batch"),
        ("MIOpenDriver conv -H 2", "out_size"),
    ],
)
def test_a_wrong_line_is_told_by_flag(line: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_driver_line(line)
    assert message in str(caught.value)
    assert str(caught.value).startswith("driver line")


def test_what_the_driver_has_no_words_for_is_told() -> None:
    for fields in ({"dtype": "FP8"}, {"out_dtype": "FP16"}, {"bias": 1}):
        problem = ConvProblem("F", 1, 2, (4, 4), 2, (1, 1), **fields)
        with pytest.raises(InputError, match="driver line"):
            format_driver_line(problem)


@given(st.text(max_size=60), st.booleans())
def test_noise_is_only_ever_input_errors(noise: str, tail: bool) -> None:
    text = f"MIOpenDriver conv {noise}" if tail else noise
    try:
        problems = parse_problem_line(text)
    except InputError:
        return
    assert problems
