"""Files of problems, and logs."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.miopen.archive import IssueLog
from foretune.miopen.driver import format_driver_line
from foretune.miopen.log import LogReader, ProblemLine, read_log, read_problem_lines

from ..strategies import DRIVER_TYPES, problems

KEY = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F"


def test_a_file_of_problems_keeps_errors_in_their_place(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(
        f"# comment\n{KEY}\n\n  {KEY}  \nMIOpenDriver conv\nhello world\n".encode()
        + b"\xff\nMIOpenDriver pool -n 1\n"
        + KEY.encode()
    )
    lines = list(read_problem_lines(path))
    assert [(line.number, len(line.problems), line.error is None) for line in lines] == [
        (2, 1, True),
        (4, 1, True),
        (5, 3, True),
        (6, 0, False),
        (7, 0, False),
        (8, 0, False),
        (9, 1, True),
    ]
    assert lines[3].text == "hello world"
    assert "UTF-8" in str(lines[4].error)


def test_problems_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(f"{KEY}\n".encode())))
    assert [line.number for line in read_problem_lines("-")] == [1]


@pytest.mark.parametrize("compress", [bytes, bz2.compress, gzip.compress, lzma.compress])
@pytest.mark.parametrize("read", [read_problem_lines, read_log])
def test_standard_input_may_be_compressed(
    read: Callable[[str], Iterable[ProblemLine]],
    compress: Callable[[bytes], bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = io.BytesIO(compress(b"MIOpenDriver conv -F 1\n"))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=content))
    assert [len(line.problems) for line in read("-")] == [1]


@pytest.mark.parametrize("read", [read_problem_lines, read_log])
def test_a_closed_standard_input_is_told(
    read: Callable[[str], Iterable[ProblemLine]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InputError, match="standard input: it is closed"):
        list(read("-"))


@pytest.mark.parametrize("read", [read_problem_lines, read_log])
def test_every_kind_of_line_end_ends_a_line(
    read: Callable[[Path], Iterable[ProblemLine]], tmp_path: Path
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(
        b"# one\r\nMIOpenDriver conv -F 1\r\n\r"
        b"MIOpenDriver conv -F 2\rMIOpenDriver conv -F 4\r# two\r"
    )
    lines = list(read(path))
    assert [line.number for line in lines] == [2, 3, 3]
    assert [problem.direction for line in lines for problem in line.problems] == ["F", "B", "W"]


def test_a_log_may_come_from_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(
        b"\x1b[32mrank 0\x1b[0m ./bin/\x1b[1mMIOpenDriver\x1b[0m conv -F 1\x1b[K\n"
        b"\x1b]0;a title\x07MIOpenDriver conv -F 2\n"
        b"\x1b]0;a title\x1b\\MIOpenDriver conv -F 4\r 10%|#  |\r./bin/MIOpenDriver conv -F 1\n"
    )
    directions = [problem.direction for line in read_log(path) for problem in line.problems]
    assert directions == ["F", "B", "W", "F"]


def test_a_log_may_hold_anything(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(
        b"\xff\xfe binary noise\n"
        b"\x1b[32mMIOpen(HIP): Command [LogCmdFindConvolution] ./bin/MIOpenDriver conv -n 2 -F 1 "
        b"-t 1\x1b[0m\r\n"
        b"MIOpen(HIP): Command [LogCmdBNorm] ./bin/MIOpenDriver bnormfp16 -n 32 -c 3\n"
        b"12:00 rank 3: 'it''s ./bin/MIOpenDriver convfp16 -n 2 -F 6\n"
        b"./bin/MIOpenDriver conv -n two\n"
        b"the MIOpenDriver\n"
        b"./bin/MIOpenDriver CBAInfer -n 1\n"
    )
    reader = read_log(path)
    lines = list(reader)
    assert [(line.number, len(line.problems)) for line in lines] == [(2, 1), (4, 2), (5, 0)]
    assert "-n" in str(lines[2].error)
    assert dict(reader.other_operations) == {"bnormfp16": 1, "CBAInfer": 1}
    assert reader.line_count == 7
    assert not reader.issues


def test_the_workloads_are_read_whole(workloads: Path) -> None:
    counts = {}
    for path in workloads.glob("*.txt"):
        reader = read_log(path)
        lines = list(reader)
        assert all(line.error is None for line in lines)
        found = sum(len(line.problems) for line in lines)
        counts[path.stem] = (len(lines), found, sum(reader.other_operations.values()))
    assert counts == {
        "alexnet": (14, 14, 3),
        "batchnorm_pooling": (0, 0, 96),
        "google_net": (49, 147, 11),
        "inception3": (129, 129, 11),
        "resnet152": (59, 59, 0),
        "resnet50": (59, 59, 1),
        "vgg16": (26, 26, 5),
    }


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for path, message in (("a", "no such file"), (".", "directory"), ("empty", "empty")):
        with pytest.raises(InputError, match=message):
            read_log(tmp_path / path)
        with pytest.raises(InputError, match=message):
            list(read_problem_lines(tmp_path / path))


LOGGED = (
    "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convfp16 -n {n} -c 8 -H 9 -W 9 "
    "-k 8 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1"
)


def logged(*lines: str) -> list[tuple[int, tuple[int, ...], str]]:
    reader = LogReader(enumerate(lines, 1), IssueLog("a.log"))
    return [
        (line.number, tuple(problem.batch for problem in line.problems), str(line.error or ""))
        for line in reader
    ]


@pytest.mark.parametrize(
    "line",
    [
        LOGGED,
        f"{LOGGED} -S 85",
        f"2026-01-01T00:00:00Z stderr F {LOGGED}",
        f"[rank3]: {LOGGED} and more",
        f"{LOGGED}[rank1]: epoch 3",
        f"epoch 3, loss 0.1{LOGGED}",
        f'{{"log":"{LOGGED}\\n","stream":"stderr"}}',
        f"\x1b[31m{LOGGED}\x1b[0m",
        f"{LOGGED}it's 12 o'clock",
        f'"C:\\ROCm\\MIOpenDriver.exe" {LOGGED.partition("MIOpenDriver ")[2]}',
    ],
)
def test_what_stands_around_a_logged_command_doesnt_matter(line: str) -> None:
    assert logged(line.replace("{n}", "7")) == [(1, (7,), "")]


def test_two_commands_may_share_a_line() -> None:
    first, second = LOGGED.format(n=1), LOGGED.format(n=2)
    assert logged(f"{first}{second}") == [(1, (1,), ""), (1, (2,), "")]
    assert logged(f"{first} {second}") == [(1, (1,), ""), (1, (2,), "")]


@pytest.mark.parametrize("cut", [" -H 9", " -g 1", " -F 1"])
def test_a_command_that_another_interrupts_is_no_smaller_problem(cut: str) -> None:
    first, second = LOGGED.format(n=1), LOGGED.format(n=2)
    start, end = first.split(cut)
    records = logged(f"{start}{cut}{second}", end)
    assert [batches for _, batches, _ in records] == [(), (2,)]
    assert "breaks off" in records[0][2]


@given(
    st.lists(problems(dtypes=DRIVER_TYPES, uniform=True, clamped=False, biases=False), max_size=3),
    st.text(st.characters(exclude_characters="\n\x1b"), max_size=20),
)
def test_any_problem_is_found_in_any_noise(asked: list[object], noise: str) -> None:
    lines = [
        f"{noise} MIOpen(HIP): Command [LogCmdConvolution] {format_driver_line(problem)} {noise}"  # type: ignore[arg-type]
        for problem in asked
    ]
    text = "\n".join([noise, *lines, noise])
    reader = LogReader(enumerate(text.split("\n"), 1), IssueLog("a.log"))
    assert [problem for line in reader for problem in line.problems] == asked


def test_what_is_asked_for_again_keeps_its_own_line(tmp_path: Path) -> None:
    good, bad = "./bin/MIOpenDriver conv -F 1", "./bin/MIOpenDriver conv -n two"
    path = tmp_path / "a.log"
    path.write_text(f"{good}\n{bad}\nnoise\n{good}\n{bad}\n")
    lines = list(read_log(path))
    assert [(line.number, len(line.problems)) for line in lines] == [(1, 1), (2, 0), (4, 1), (5, 0)]
    assert [str(line.error) for line in lines if line.error] == [
        "driver line, -n: expected a whole number, got 'two'"
    ] * 2
