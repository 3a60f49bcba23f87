"""The command's quickstart, for real on this processor."""

from __future__ import annotations

import json

import pytest

from foretune import quickstart
from foretune.cli import main
from foretune.cli import quickstart as verb
from foretune.kernels.conv.problem import ConvProblem
from tests.kernels.processor import needs_processor


def _miopen_is_whole(record: dict[str, object]) -> None:
    miopen = record["miopen"]
    assert isinstance(miopen, dict)
    assert len(miopen["answers"]) > 60
    assert all(answer["solutions"] for answer in miopen["answers"])
    assert any(answer["accepted"] for answer in miopen["answers"])
    assert miopen["seconds"] > 0


@needs_processor
def test_picks_are_measured_beside_the_best_of_a_search(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["quickstart", "--budget", "0.2", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    _miopen_is_whole(record)
    assert record["skipped"] == ""
    kernels = record["kernels"]
    assert sum(layer["count"] for layer in kernels["layers"]) == 19
    for layer in kernels["layers"]:
        assert 0 < layer["best_ms"] <= layer["pick_ms"]
        assert layer["best_ms"] <= layer["default_ms"]
        assert layer["rung"] in ("system database", "model", "fallback")
        assert 0 < layer["ask_seconds"] < layer["search_seconds"]
    for name in ("pick_ms", "best_ms", "default_ms"):
        total = sum(layer["count"] * layer[name] for layer in kernels["layers"])
        assert kernels[name] == pytest.approx(total)


def test_what_cannot_be_measured_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    how = "pyopencl is not installed; pip install 'foretune[cpu]'"
    monkeypatch.setattr(quickstart, "why_absent", lambda: how)
    assert main(["quickstart"]) == 0
    captured = capsys.readouterr()
    assert "MI300X" in captured.out
    (line,) = [line for line in captured.out.splitlines() if line.startswith("skipped")]
    assert line.endswith(how)
    assert not captured.err
    assert main(["quickstart", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    _miopen_is_whole(record)
    assert record["kernels"] is None
    assert record["skipped"] == how


def test_tables_show_what_was_measured() -> None:
    layer = quickstart.CheckedLayer(
        name="stem",
        problem=ConvProblem("F", 1, 3, (8, 8), 4, (3, 3)),
        count=3,
        pick="ConvDirect{A=1}",
        rung="model",
        reason="sure",
        best="ConvNaive",
        pick_ms=2.0,
        best_ms=1.0,
        default_ms=4.0,
        ask_seconds=0.001,
        search_seconds=5.0,
    )
    part = quickstart.KernelsPart("a processor", "a network", (layer, layer), 0.5)
    text = "\n".join(verb._kernel_lines(part))
    assert "stem  3 ConvDirect model 2 1 2.00 1.0 5.0".split() in map(str.split, text.splitlines())
    assert "12 ms as picked, 6 ms with the best found (50%), 24 ms by default" in text
    assert "asking took 2.0 ms (and 0.50 s once, to start), searching 10.0 s" in text


@pytest.mark.parametrize("budget", ["0", "-1", "nan"])
def test_a_budget_is_above_zero(budget: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quickstart", "--budget", budget]) == 2
    assert "--budget: expected seconds above 0" in capsys.readouterr().err
