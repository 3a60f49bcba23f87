"""foretune explain: who answered, and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretune.cli import main
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.found import Found, FoundSolution
from foretune.kernels.records import BannedCandidate
from foretune.kernels.registry import solver
from foretune.kernels.runtime.device import open_device
from foretune.kernels.store import Store
from tests.kernels.processor import needs_processor

KEY = "8-9-9-3x3-8-7-7-1-0x0-1x1-1x1-0-NCHW-FP32-F"
PROBLEM = ConvProblem("F", 1, 8, (9, 9), 8, (3, 3))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("FORETUNE_CACHE", str(tmp_path))
    return Store()


@needs_processor
def test_what_is_stored_is_told(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    properties = open_device("cpu").properties
    naive = solver("conv", "ConvNaive").default_config(PROBLEM, properties).key
    direct = solver("conv", "ConvDirect").default_config(PROBLEM, properties).key
    solutions = (
        FoundSolution("ConvDirect", direct, 0.125, 0.1, 0.2, 7, 0),
        FoundSolution("ConvNaive", naive, 0.25, 0.2, 0.3, 7, 0),
    )
    store.put(Found(PROBLEM, properties.name, solutions), properties)
    key = f"ConvDirect{{{direct}}}"
    store.ban(BannedCandidate(key, "conv ...", "crashed: SIGSEGV"), properties)
    assert main(["explain", "--device", "cpu", KEY]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(KEY)
    assert lines[1].startswith("answered by: user database")
    (chosen,) = (line for line in lines if line.startswith("*"))
    assert "ConvNaive" in chosen
    assert "0.25" in chosen
    assert any("ConvDirect" in line and "not used, crashed: SIGSEGV" in line for line in lines)
    assert lines[-1].startswith(f"not used: {key}")
    assert main(["explain", "--device", "cpu", "--json", KEY]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["problem"], told["solver"], told["rung"]) == (KEY, "ConvNaive", "user database")
    assert [one["measured_ms"] for one in told["considered"]] == [0.125, 0.25]
    assert told["notes"]


@needs_processor
def test_fast_answers_without_measuring(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--device", "cpu", "--mode", "fast", "--json", KEY]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rung"] in ("model", "fallback")
    assert all(one["measured_ms"] is None for one in told["considered"])
    assert list(store.contents()) == []


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "cpu", "--mode", "SLOW", KEY], "mode: expected one of NORMAL (1)"),
        (["--device", "cpu", "--budget", "0", KEY], "budget_ms: expected milliseconds above 0"),
        (["--device", "cpu", "--workspace-limit", "-1", KEY], "workspace_limit: expected bytes"),
        (["--device", "cpu", "--risk", "2", KEY], "risk: expected a share"),
        (["--device", "tpu", KEY], "device: unknown device 'tpu'"),
        (["--device", "cpu", "nonsense"], "nonsense"),
    ],
)
@needs_processor
def test_wrong_input_is_told(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["explain", *words]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert message in told.err
    assert len(told.err.splitlines()) == 1
