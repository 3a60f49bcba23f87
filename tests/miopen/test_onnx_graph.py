"""Convolutions of ONNX files."""

from __future__ import annotations

import warnings
from pathlib import Path

import onnx
import pytest
import torch

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.onnx_graph import read_onnx
from foretune.torch import capture

from ..networks import diffusion_unet, efficientnet, vocoder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.onnx"


def save(path: Path, graph: str, opset: int = 17) -> Path:
    opsets = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(onnx.parser.parse_graph(graph), opset_imports=opsets)
    onnx.save(model, path)
    return path


def export(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], path: Path) -> None:
    names = [f"input{number}" for number in range(len(inputs))]
    with warnings.catch_warnings():
        # The newer exporter needs packages that nothing else here needs.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(),
            inputs,
            str(path),
            dynamo=False,
            input_names=names,
            dynamic_axes={name: {0: "batch"} for name in names},
        )


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (efficientnet.build(), (torch.rand(2, 3, 32, 32),)),
        (vocoder.build(), (torch.rand(2, 80, 5),)),
        (
            diffusion_unet.build(),
            (torch.rand(2, 4, 16, 16), torch.rand(2), torch.rand(2, 7, 48)),
        ),
    ],
)
def test_what_pytorch_exports_asks_for_what_pytorch_asks_for(
    model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], path: Path
) -> None:
    export(model, inputs, path)
    for batch in (2, 5):
        runs = [tensor[:1].expand(batch, *tensor.shape[1:]) for tensor in inputs]
        sizes = ["x".join(map(str, run.shape)) for run in runs]
        found = read_onnx(path, [",".join(sizes)])
        assert found.counts == capture(model, tuple(runs), backward=False)
        assert not found.left_out
        named = ",".join(f"input{number}={size}" for number, size in enumerate(sizes))
        assert read_onnx(path, [named]).counts == found.counts


def test_an_open_size_is_named(path: Path) -> None:
    save(
        path,
        "g (float[batch, 3, 9, 'width'] image, float[8, 3, 3, 3] w) => (float[a, b, c, d] y)"
        "{ y = Conv(image, w) }".replace("'width'", "width"),
    )
    with pytest.raises(InputError, match=r"'batch' of the input 'image', 'width' of the input"):
        read_onnx(path, ["w=8x3x3x3"])
    with pytest.raises(InputError, match=r"--input image=<batch>x3x9x<width>"):
        read_onnx(path)
    found = read_onnx(path, ["2x3x9x9", "image=4x3x9x5", "2x3x9x9"])
    assert [(problem.batch, problem.out_size, n) for problem, n in found.counts.items()] == [
        (2, (7, 7), 2),
        (4, (7, 3), 1),
    ]


def one(path: Path, graph: str) -> ConvProblem:
    (problem,) = read_onnx(save(path, graph)).counts
    return problem


def test_attributes(path: Path) -> None:
    x = "g (float16[2, 8, 20, 21] x, float16[12, 4, 3, 5] w) => (float16[a, b, c, d] y)"
    assert one(
        path,
        f"{x} {{ y = Conv<group = 2, strides = [2, 1], dilations = [1, 2], pads = [1, 3, 1, 3]>"
        "(x, w) }",
    ) == ConvProblem(
        "F", 2, 8, (20, 21), 12, (3, 5), (2, 1), (1, 3), (1, 2), groups=2, dtype="FP16"
    )
    same = one(path, f'{x} {{ y = Conv<group = 2, auto_pad = "SAME_UPPER">(x, w) }}')
    assert same.out_size == (20, 21)
    assert same.padding == (1, 2)
    valid = one(path, f'{x} {{ y = Conv<group = 2, auto_pad = "VALID">(x, w) }}')
    assert valid.padding == (0, 0)


def test_transposed_is_the_gradient_of_the_input(path: Path) -> None:
    x = "g (bfloat16[2, 8, 7, 7] x, bfloat16[8, 3, 4, 4] w) => (bfloat16[a, b, c, d] y)"
    for attributes in (
        "strides = [2, 2], pads = [1, 1, 1, 1], group = 2, output_padding = [1, 1]",
        "strides = [2, 2], output_shape = [15, 15], group = 2, output_padding = [1, 1]",
    ):
        assert one(path, f"{x} {{ y = ConvTranspose<{attributes}>(x, w) }}") == ConvProblem(
            "B", 2, 6, (15, 15), 8, (4, 4), (2, 2), (1, 1), groups=2, dtype="BF16"
        )


def test_one_and_three_dimensions(path: Path) -> None:
    line = one(
        path,
        "g (float[1, 4, 30] x, float[6, 4, 3] w) => (float[a, b, c] y)"
        "{ y = Conv<strides = [2], pads = [1, 1], dilations = [2]>(x, w) }",
    )
    assert line == ConvProblem("F", 1, 4, (1, 30), 6, (1, 3), (1, 2), (0, 1), (1, 2))
    volume = one(
        path,
        "g (float[1, 4, 5, 6, 7] x, float[6, 4, 3, 3, 3] w) => (float[a, b, c, d, e] y)"
        "{ y = Conv(x, w) }",
    )
    assert volume.out_size == (3, 4, 5)


def test_what_miopen_has_no_words_for_is_counted(path: Path) -> None:
    found = read_onnx(
        save(
            path,
            "g (float[1, 4, 9, 9] x, float[4, 4, 3, 3] w, double[1, 4, 9, 9] p,"
            " double[4, 4, 3, 3] q, uint8[1, 4, 9, 9] i, uint8[4, 4, 3, 3] j)"
            " => (float[a, b, c, d] y, double[k, l, m, n] r, int32[s, t, u, v] z) {"
            " h = Conv<pads = [0, 0, 1, 1]>(x, w)"
            " y = Conv(h, w)"
            " r = Conv(p, q)"
            " z = ConvInteger(i, j)"
            "}",
        )
    )
    assert [problem.in_size for problem in found.counts] == [(8, 8)]
    assert found.left_out == {
        "padding that differs on the two sides": 1,
        "double": 1,
        "ConvInteger": 1,
    }


def test_branches_and_functions_are_searched(path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
    g (float[1, 4, 9, 9] x, float[4, 4, 3, 3] w, bool c) => (float[1, 4, 7, 7] y)
    {
        h = If (c) <
            then_branch = a () => (float[1, 4, 7, 7] t) { t = Conv(x, w) },
            else_branch = b () => (float[1, 4, 7, 7] e) { e = mine.twice(x, w) }
        >
        y = Relu(h)
    }
    <domain: "mine", opset_import: ["" : 17]>
    twice (x, w) => (z) { p = Conv<pads = [1, 1, 1, 1]>(x, w)  z = Conv(p, w) }
    """
    onnx.save(onnx.parser.parse_model(text), path)
    assert sum(read_onnx(path).counts.values()) == 3


def test_weights_beside_the_file_arent_needed(path: Path) -> None:
    graph = onnx.parser.parse_graph("g (float[1, 64, 9, 9] x) => (float[a, b, c, d] y) {}")
    weight = onnx.helper.make_tensor("w", 1, (64, 64, 3, 3), b"\0" * 4 * 64 * 64 * 9, raw=True)
    graph.initializer.append(weight)
    graph.node.append(onnx.helper.make_node("Conv", ["x", "w"], ["y"]))
    onnx.save(onnx.helper.make_model(graph), path, save_as_external_data=True, location="a.weights")
    path.with_name("a.weights").unlink()
    assert [problem.out_channels for problem in read_onnx(path).counts] == [64]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("x=1x3x9x9,z=1", "it has no input 'z'; it has x, w"),
        ("2x3x9x9", "its input 'x' is 1x3x9x9, which 2x3x9x9 doesn't fit"),
        ("1x3x9", "its input 'x' is 1x3x9x9, which 1x3x9 doesn't fit"),
        ("1x3x9x9,8x3x3x3,1", r"it has 2 inputs \(x, w\), got 3"),
    ],
)
def test_wrong_inputs_are_told(given: str, message: str, path: Path) -> None:
    save(
        path,
        "g (float[1, 3, 9, 9] x, float[8, 3, 3, 3] w) => (float[a, b, c, d] y) { y = Conv(x, w) }",
    )
    with pytest.raises(InputError, match=message):
        read_onnx(path, [given])


def test_what_is_no_onnx_file_is_told(path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_onnx(path)
    for content in (b"", b"hello world", b"\xff" * 100):
        path.write_bytes(content)
        with pytest.raises(InputError, match="no ONNX file"):
            read_onnx(path)
    save(
        path,
        "g (float[1, 3, 9, 9] x, float[8, 5, 3, 3] w) => (float[a, b, c, d] y) { y = Conv(x, w) }",
    )
    with pytest.raises(InputError, match="it has 3 channels, and its filter is for 5"):
        read_onnx(path)
