"""Models out of files, and what may be wrong with them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretune.errors import InputError
from foretune.torch.model_file import trace_model_file

CODE = """\
import torch
from torch import nn
import beside

print("importing")
net = nn.Conv2d(3, beside.CHANNELS, 3)
number = 3

def build():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))

def fails():
    raise KeyError("no weights")

def gives_nothing():
    return None

class Rates(nn.Module):
    def __init__(self):
        super().__init__()
        # Values are asked for, so this can't be built of tensors without any.
        self.rates = [rate.item() for rate in torch.linspace(1, 2, 2)]
        self.layer = nn.Conv2d(3, 8, int(self.rates[1]))

    def forward(self, x):
        return self.layer(x)

class Looks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        y = self.layer(x)
        return y if y.sum().item() > 0 else x

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 8, 3)
        self.words = nn.Embedding(10, 8)

    def forward(self, image, tokens):
        assert tokens.dtype == torch.int64
        return {"y": self.layer(image), "t": [self.words(tokens)]}
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr("sys.path", list(sys.path))
    (tmp_path / "net.py").write_text(CODE)
    (tmp_path / "beside.py").write_text("CHANNELS = 8\n")
    yield str(tmp_path / "net.py")
    for name in ("beside", "foretune_model_net"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["build", "net", "Rates"])
def test_functions_classes_and_models_are_taken(
    name: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    traced = trace_model_file(path, name, ["2x3x9x9", "4x3x9x9"])
    assert [problem.batch for problem in traced.counts] == [2, 4]
    captured = capsys.readouterr()
    assert not captured.out
    assert "importing" in captured.err


def test_inference_is_in_evaluation_mode(path: str) -> None:
    # Batch normalisation of one value per channel can't be trained.
    assert trace_model_file(path, "build", ["1x3x3x3"]).counts
    with pytest.raises(InputError, match="more than 1 value per channel"):
        trace_model_file(path, "build", ["1x3x3x3"], backward=True)


def test_types_and_gradients(path: str) -> None:
    for dtype, autocast, name in (
        ("", False, "FP32"),
        ("bf16", False, "BF16"),
        ("bf16", True, "BF16"),
        ("", True, "FP16"),
    ):
        traced = trace_model_file(
            path, "build", ["2x3x9x9"], dtype=dtype, autocast=autocast, backward=True
        )
        assert [(problem.direction, problem.dtype) for problem in traced.counts] == [
            ("F", name),
            ("W", name),
        ]
    assert trace_model_file(path, "build", ["2x3x9x9"], dtype="fp64").native == {"float64": 1}


def test_several_tensors(path: str) -> None:
    for text in ("1x3x9x9,2:int64", "tokens=2:int64,image=1x3x9x9"):
        traced = trace_model_file(path, "Two", [text], backward=True)
        assert [problem.direction for problem in traced.counts] == ["F", "W"]


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("missing", "1x3x9x9", r"no 'missing' in it; it has build, fails"),
        ("number", "1x3x9x9", "expected a function, a class or a model, got 3"),
        ("fails", "1x3x9x9", r"net.py:fails: it can't be built: KeyError: 'no weights' \(line 13"),
        ("gives_nothing", "1x3x9x9", "it gives no model, but None"),
        ("build", "1x4x9x9", r"--input 1x4x9x9: the model fails: RuntimeError: .* 3 channels"),
        ("Two", "1x3x9x9", "missing 1 required positional argument: 'tokens'"),
        ("Looks", "1x3x9x9", r"asks for values of tensors \(line 35\).*MIOPEN_ENABLE_LOGGING_CMD"),
        ("build", "1x3x9x9:fp8", "no input of type fp8"),
    ],
)
def test_what_is_wrong_is_one_line(name: str, given: str, message: str, path: str) -> None:
    with pytest.raises(InputError, match=message) as told:
        trace_model_file(path, name, [given])
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def f(:", r"it can't be imported: SyntaxError: .* \(line 1\)"),
        ("\nimport nothing_like_it", r"ModuleNotFoundError: .*nothing_like_it.* \(line 2\)"),
        ("raise SystemExit(3)", "it can't be imported: SystemExit: 3"),
    ],
)
def test_a_file_that_cant_be_imported_is_told(code: str, message: str, path: str) -> None:
    Path(path).write_text(code)
    with pytest.raises(InputError, match=message):
        trace_model_file(path, "build", ["1x3x9x9"])


def test_other_mistakes_are_told(path: str) -> None:
    with pytest.raises(InputError, match="needs the shape of its input"):
        trace_model_file(path, "build", [])
    with pytest.raises(InputError, match="--dtype: expected one of fp32"):
        trace_model_file(path, "build", ["1x3x9x9"], dtype="int8")
    with pytest.raises(InputError, match="autocast computes in fp16 or bf16, not fp32"):
        trace_model_file(path, "build", ["1x3x9x9"], dtype="fp32", autocast=True)
    with pytest.raises(InputError, match=r"other\.py: there is no such file"):
        trace_model_file("other.py", "build", ["1x3x9x9"])
