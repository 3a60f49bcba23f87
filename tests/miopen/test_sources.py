"""One function reads whatever tells a program's convolutions."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from foretune.errors import InputError
from foretune.miopen.driver import parse_driver_line
from foretune.miopen.keys import format_find_key, parse_find_key
from foretune.miopen.sources import ModelOptions, read_source, takes_model_options

KEY = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F"
OTHER = "256-14-14-3x3-256-14-14-64-1x1-1x1-1x1-0-NCHW-FP32-B"
LINE = "./bin/MIOpenDriver conv -n 2 -F 1"
PROBLEM = parse_driver_line(LINE)[0]


def write(folder: Path, *lines: str) -> Path:
    path = folder / "a.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_log_is_counted(tmp_path: Path) -> None:
    source = read_source(
        write(
            tmp_path, "epoch 1", LINE, "x", LINE, "MIOpenDriver bnorm -n 1", "MIOpenDriver conv -Q"
        )
    )
    assert source.counts == {PROBLEM: 2}
    assert source.notes == ("operations that are no convolution: 1 bnorm",)
    assert [line.number for line in source.errors] == [6]


def test_driver_lines_and_commented_files_are_logs(tmp_path: Path) -> None:
    assert read_source(write(tmp_path, LINE, LINE)).counts == {PROBLEM: 2}
    assert read_source(write(tmp_path, "# 2 times:", "", LINE)).counts == {PROBLEM: 1}


def test_keys_are_counted_and_what_else_is_told(tmp_path: Path) -> None:
    source = read_source(write(tmp_path, "# mine", KEY, OTHER, KEY, LINE, "hello world"))
    assert source.counts == {parse_find_key(KEY): 2, parse_find_key(OTHER): 1, PROBLEM: 1}
    assert list(source.counts) == [parse_find_key(KEY), parse_find_key(OTHER), PROBLEM]
    assert [line.number for line in source.errors] == [6]


def test_json_lines_keep_their_counts(tmp_path: Path) -> None:
    lines = [json.dumps({"problem": KEY, "count": 3}), json.dumps({"problem": OTHER})]
    wrong = [
        '{"problem": 3}',
        '{"problem": "x"}',
        json.dumps({"problem": KEY, "count": 0}),
        "[" * 9,
    ]
    source = read_source(write(tmp_path, *lines, lines[0], *wrong))
    assert source.counts == {parse_find_key(KEY): 6, parse_find_key(OTHER): 1}
    assert [line.number for line in source.errors] == [4, 5, 6, 7]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(f"{KEY}\n".encode())))
    assert [format_find_key(problem) for problem in read_source("-").counts] == [KEY]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["hello", "world"], r"MIOPEN_ENABLE_LOGGING_CMD=1.*2> program.log"),
        (["MIOpenDriver bnorm -n 1"], "MIOPEN_ENABLE_LOGGING_CMD=1.*1 bnorm"),
        (["# nothing", ""], "nothing but blank lines and comments"),
    ],
)
def test_a_file_without_convolutions_is_told(
    lines: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        read_source(write(tmp_path, *lines))


def test_models_are_told_from_files(tmp_path: Path) -> None:
    assert takes_model_options("a/net.py:nets.build")
    assert takes_model_options("net.ONNX")
    assert not takes_model_options(tmp_path / "a.log")
    with pytest.raises(InputError, match=r"such as net\.py:build"):
        read_source("net.py")


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        (ModelOptions(backward=True), "--backward"),
        (ModelOptions(dtype="fp16"), "--dtype"),
        (ModelOptions(channels_last=True), "--channels-last"),
        (ModelOptions(autocast=True), "--autocast"),
    ],
)
def test_what_an_onnx_file_settles_itself_is_not_asked_for(
    options: ModelOptions, flag: str
) -> None:
    with pytest.raises(InputError, match=f"no gradients; leave out {flag}"):
        read_source("net.onnx", options)
