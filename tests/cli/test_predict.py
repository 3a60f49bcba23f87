"""`foretune predict`: what comes in, in which order it is answered, and in which form."""

from __future__ import annotations

import bz2
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from foretune.api import known_archs
from foretune.cli import main
from foretune.miopen.driver import parse_driver_line
from foretune.miopen.keys import format_find_key

KEY = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F"
OTHER = "256-14-14-3x3-256-14-14-64-1x1-1x1-1x1-0-NCHW-FP32-B"
LINE = "MIOpenDriver convfp16 -n 16 -c 64 -H 28 -W 28 -k 64 -y 3 -x 3 -p 1 -q 1"
FIELDS = ["problem", "arch", "compute_units", "accepted", "risk", "reason", "solutions"]
SOLUTION_FIELDS = ["solver", "config", "predicted_ms", "workspace", "score"]


class Answers:
    """Runs `foretune predict --json`."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.error = ""

    def __call__(
        self, *arguments: str | Path, arch: str = "gfx942", code: int = 0
    ) -> list[dict[str, Any]]:
        words = ["predict", "--arch", arch, "--json", *map(str, arguments)]
        assert main(words) == code
        out, self.error = self.capsys.readouterr()
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def answers(capsys: pytest.CaptureFixture[str]) -> Answers:
    return Answers(capsys)


def names(records: list[dict[str, Any]]) -> list[str]:
    return [record.get("problem") or record["input"] for record in records]


@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx942"])
def test_an_answer_has_all_fields(answers: Answers, arch: str) -> None:
    (record,) = answers(KEY, arch=arch)
    assert list(record) == FIELDS
    assert (record["problem"], record["arch"], record["risk"]) == (KEY, arch, 0.05)
    assert isinstance(record["accepted"], bool)
    assert record["reason"]
    assert 1 < len(record["solutions"]) <= 4
    for solution in record["solutions"]:
        assert list(solution) == SOLUTION_FIELDS
        assert solution["predicted_ms"] > 0
        assert 0 <= solution["score"] <= 1
        assert solution["workspace"] is None or solution["workspace"] >= 0


def test_milliseconds_are_milliseconds(answers: Answers) -> None:
    # What AMD's find-db for the MI300X lists for the winner.
    measured = {"192-13-13-3x3-384-13-13-512-1x1-1x1-1x1-0-NCHW-FP32-F": 1.159}
    for record in answers(*measured):
        assert 0.5 < record["solutions"][0]["predicted_ms"] / measured[record["problem"]] < 2


def test_options_reach_the_predictor(answers: Answers) -> None:
    (record,) = answers("--top", "1", "--risk", "0.1", "--cu", "228", KEY)
    assert len(record["solutions"]) == 1
    assert (record["risk"], record["compute_units"], record["accepted"]) == (0.1, 228, False)
    assert "228 units" in record["reason"]
    (record,) = answers(KEY, arch="gfx90a:sramecc+:xnack-")
    assert (record["arch"], record["compute_units"]) == ("gfx90a", 104)
    (old,) = answers("--miopen", "3.6", "--top", "99", KEY, arch="gfx908")
    assert old["solutions"]
    assert not any(s["solver"].startswith("ConvMlir") for s in old["solutions"])


@pytest.mark.parametrize("arch", ["gfx1100", "sm_90", "gfx999"])
def test_an_unknown_arch_is_answered_with_nothing(answers: Answers, arch: str) -> None:
    (record,) = answers(KEY, arch=arch)
    assert list(record) == FIELDS
    assert (record["accepted"], record["solutions"]) == (False, [])
    assert arch in record["reason"]


def test_a_line_of_all_directions_is_answered_in_their_order(answers: Answers) -> None:
    records = answers(KEY, LINE, f"{LINE} -F 6", OTHER)
    assert "".join(name.split("-")[-1] for name in names(records)) == "FFBWBWB"
    assert names(records)[1:4] == [format_find_key(p) for p in parse_driver_line(LINE)]


def test_repeats_stay_unless_folded(answers: Answers) -> None:
    twice = f"{LINE} -F 1"
    records = answers(OTHER, twice, KEY, twice, OTHER, LINE)
    assert len(records) == 8
    folded = answers("--unique", OTHER, twice, KEY, twice, OTHER, LINE)
    assert names(folded) == list(dict.fromkeys(names(records)))
    assert [record.pop("count") for record in folded] == [2, 3, 1, 1, 1]
    assert all(record in records for record in folded)


def test_errors_stand_in_their_place(answers: Answers) -> None:
    records = answers(KEY, "nonsense", f"{LINE} -Q 1", OTHER, code=2)
    assert names(records) == [KEY, "nonsense", f"{LINE} -Q 1", OTHER]
    for record, position in ((records[1], 2), (records[2], 3)):
        assert list(record) == ["input", "line", "error"]
        assert record["line"] == position
        assert record["error"]
    assert "-Q" in records[2]["error"]
    assert names(answers("--unique", "nonsense", KEY, KEY, code=2)) == ["nonsense", KEY]
    assert answers(KEY[:-2], arch="gfx1100", code=2)[0]["line"] == 1


def test_a_file_is_strict(answers: Answers, tmp_path: Path) -> None:
    path = tmp_path / "problems.txt.bz2"
    text = f"# mine\n{KEY}\n\n   \nhello MIOpen\n{LINE} -F 2\n  # indented\n{KEY}\n"
    path.write_bytes(bz2.compress(text.encode()))
    records = answers("--from", path, code=2)
    assert [record.get("line", 0) for record in records] == [0, 5, 0, 0]
    assert names(records)[1] == "hello MIOpen"
    assert names(records)[0] == names(records)[3] == KEY


def test_a_long_file_is_answered_whole_and_in_order(answers: Answers, tmp_path: Path) -> None:
    keys = [KEY.replace("-32-", f"-{batch}-", 1) for batch in range(1, 1101)]
    path = tmp_path / "many.txt"
    path.write_text("\n".join(keys))
    assert names(answers("--from", path, arch="gfx1100")) == keys


def test_standard_input_is_a_file(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    for option in ("--from", "--log"):
        stdin = SimpleNamespace(buffer=io.BytesIO(f"{LINE} -F 1\n{LINE} -F 4\n".encode()))
        monkeypatch.setattr("sys.stdin", stdin)
        assert [name[-1] for name in names(answers(option, "-"))] == ["F", "W"]


def test_a_log_may_hold_other_lines(answers: Answers, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(
        f"epoch 1 \xff\nMIOpen(HIP): Command [LogCmdConvolution] ./bin/{LINE} -F 1 -t 1\n"
        f"./bin/MIOpenDriver pool -n 1\n{KEY}\n./bin/MIOpenDriver conv -n two\n".encode("latin-1")
    )
    records = answers("--log", path, code=2)
    assert [record.get("line", 0) for record in records] == [0, 5]
    assert "1 pool" in answers.error


def test_a_log_without_convolutions_is_remarked(answers: Answers, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(f"epoch 1\n{KEY}\n")
    assert not answers("--log", path, arch="gfx1100")
    assert "MIOPEN_ENABLE_LOGGING_CMD=1" in answers.error
    path.write_text(f"epoch 1\n{LINE}\n")
    assert len(answers("--log", path, arch="gfx1100")) == 3
    assert not answers.error


def test_a_log_that_breaks_off_is_answered_and_told(answers: Answers, tmp_path: Path) -> None:
    path = tmp_path / "train.log.bz2"
    noise = "".join(f"{i * 7919 % 104729} {i * 31 % 9973}\n" for i in range(200_000))
    whole = bz2.compress(f"{LINE} -F 1\n{noise}".encode())
    path.write_bytes(whole[: len(whole) * 9 // 10])
    records = answers("--log", path, code=2)
    assert list(records[0]) == FIELDS
    assert "breaks off" in records[-1]["error"]


def test_networks_are_answered(answers: Answers, workloads: Path) -> None:
    for name, count in (("resnet50", 59), ("google_net", 147)):
        records = answers("--log", workloads / f"{name}.txt")
        assert len(records) == count
        assert all(record["solutions"] for record in records)


def test_the_table_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--arch", "gfx90a", "--cu", "80", "--top", "2", KEY, "a\x1b[1m"]) == 2
    header, first, second, why, wrong, reason = capsys.readouterr().out.splitlines()
    assert header.split() == ["problem", "accepted", "solver", "ms", "workspace", "score", "config"]
    assert first.split()[:2] == [KEY, "no"]
    assert second.startswith(" " * len(KEY))
    assert why.strip() == "not accepted: no data for 80 units"
    assert wrong.split() == ["a?[1m", "error"]
    assert "line" not in header
    assert reason.startswith("  line 2: find-db key ")
    assert main(["predict", "--arch", "gfx90a", "--unique", KEY, KEY]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[2] == "count"
    assert lines[1].split()[2] == "2"


def test_without_an_arch_those_with_a_model_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    if any(Path("/sys/class/kfd/kfd/topology/nodes").glob("*/properties")):
        pytest.skip("this machine may have an AMD GPU, which is then the default")
    assert main(["predict", KEY]) == 2
    assert ", ".join(known_archs()) in capsys.readouterr().err
    assert {"gfx908", "gfx90a", "gfx942"} <= set(known_archs())
