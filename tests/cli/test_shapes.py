"""`foretune shapes`: what it lists, and that other verbs take it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest

from foretune.cli import main
from foretune.miopen.driver import parse_driver_line
from foretune.miopen.keys import format_find_key
from foretune.miopen.sources import read_source

LINE = (
    "./bin/MIOpenDriver conv -n 2 -c 3 -H 9 -W 9 -k 8 -y 3 -x 3 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 "
    "-m conv -g 1 -F 1 -t 1"
)
MODEL = "from torch import nn\n\ndef build():\n    return nn.Conv2d(3, 8, 3)\n"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("sys.path", list(sys.path))
    path = tmp_path / "net.py"
    path.write_text(MODEL)
    return f"{path}:build"


def test_a_log_is_listed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.log"
    other = LINE.replace("-F 1", "-F 2")
    path.write_text(
        f"hello\n[0] MIOpen(HIP): Command [LogCmdConvolution] {LINE}\n{other}\n{LINE}\n"
    )
    assert main(["shapes", str(path)]) == 0
    out, error = capsys.readouterr()
    assert out == f"# 2 times:\n{LINE}\n{other}\n"
    assert "convolutions: 2, calls of them: 3" in error


def test_a_model_is_listed(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shapes", model, "--input", "2x3x9x9"]) == 0
    assert capsys.readouterr().out == f"{LINE}\n"
    words = ["--input", "2x3x9x9", "--input", "4x3x9x9", "--backward", "--dtype", "bf16", "--json"]
    assert main(["shapes", model, *words]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [list(record) for record in records] == [["problem", "count", "driver"]] * 4
    assert [record["problem"][-1] for record in records] == ["F", "W", "F", "W"]
    for record in records:
        (problem,) = parse_driver_line(record["driver"])
        assert format_find_key(problem) == record["problem"]
        assert problem.dtype == "BF16"


def test_channels_last_needs_the_environment(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["shapes", model, "--input", "2x3x9x9", "--channels-last"]
    assert main(words) == 0
    out, error = capsys.readouterr()
    assert out == f"{LINE}\n"
    assert "PYTORCH_MIOPEN_SUGGEST_NHWC=1" in error
    monkeypatch.setenv("PYTORCH_MIOPEN_SUGGEST_NHWC", "1")
    assert main(words) == 0
    out, error = capsys.readouterr()
    assert "--in_layout NHWC --fil_layout NHWC --out_layout NHWC" in out
    assert "PYTORCH_MIOPEN_SUGGEST_NHWC" not in error


def test_an_onnx_file_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = onnx.parser.parse_graph(
        "g (float[n, 3, 9, 9] x, float[8, 3, 3, 3] w) => (float[a, b, c, d] y) { y = Conv(x, w) }"
    )
    path = tmp_path / "a.onnx"
    onnx.save(onnx.helper.make_model(graph), path)
    assert main(["shapes", str(path), "--input", "x=2x3x9x9"]) == 0
    assert capsys.readouterr().out == f"{LINE}\n"
    assert main(["shapes", str(path)]) == 2
    assert "'n' of the input 'x'" in capsys.readouterr().err


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_other_verbs_take_what_it_lists(
    form: list[str],
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["shapes", model, "--input", "2x3x9x9", "--input", "2x3x9x9", "--backward", *form]
    assert main(words) == 0
    listed = capsys.readouterr().out
    path = tmp_path / "listed"
    path.write_text(listed)
    counts = read_source(path).counts
    assert [problem.direction for problem in counts] == ["F", "W"]
    assert set(counts.values()) == ({2} if form else {1})
    if not form:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(listed.encode())))
        assert main(["predict", "--arch", "gfx942", "--json", "--from", "-"]) == 0
        records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [record["problem"] for record in records] == list(map(format_find_key, counts))


def test_what_cant_be_read_is_told_after_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.log"
    path.write_text(f"MIOpenDriver conv -n two\n{LINE}\nMIOpenDriver pool -n 1\n")
    assert main(["shapes", str(path)]) == 2
    out, error = capsys.readouterr()
    assert out == f"{LINE}\n"
    assert "error: line 1: driver line, -n: expected a whole number" in error
    assert "1 pool" in error


def test_a_log_without_convolutions_says_how_to_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.log"
    path.write_text("hello\n")
    assert main(["shapes", str(path)]) == 2
    out, error = capsys.readouterr()
    assert not out
    assert "MIOPEN_ENABLE_LOGGING_CMD=1" in error
    assert main(["shapes", str(path), "--input", "1x3x9x9"]) == 2
    assert "for a model" in capsys.readouterr().err


@pytest.mark.parametrize(("package", "source"), [("torch", "net.py:build"), ("onnx", "net.onnx")])
def test_a_missing_package_is_told(
    package: str,
    source: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("foretune.torch.model_file", "foretune.torch", "foretune.miopen.onnx_graph"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["shapes", source, "--input", "1x3x9x9"]) == 2
    assert f"pip install 'foretune[{package}]'" in capsys.readouterr().err
