"""The command as a whole: help, exit codes, one line for an error, and what it costs to start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from foretune.cli import VERBS, main

KEY = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F"
COMMAND = [sys.executable, "-c", "import sys; from foretune.cli import main; sys.exit(main())"]
LEARNING = {"lightgbm", "sklearn", "scipy", "pandas", "pyarrow"}


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_the_verbs(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    out = capsys.readouterr().out
    for verb, summary in VERBS.items():
        assert f"{verb} " in out
        assert summary in out


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help_with_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: foretune {verb} ")
    assert f"foretune {verb} " in out.partition("examples:")[2]
    assert main(["help", verb]) == 0
    assert capsys.readouterr().out == out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predcit"], "unknown verb 'predcit'; known are quickstart, predict"),
        (["predict", "--arch", "gfx942", "--rsik", "1", KEY], "unknown arguments: --rsik"),
        (["predict", "--arch", "gfx942", KEY, "--top", "x"], "--top: invalid int value: 'x'"),
        (["predict", "--arch", "gfx942", KEY, "--top", "0"], "--top: expected at least 1"),
        (["predict", "--arch", "gfx942", KEY, "--risk", "1.5"], "risk: expected a share"),
        (["predict", "--arch", "gfx942", KEY, "--risk", "nan"], "risk: expected a share"),
        (["predict", "--arch", "gfx942", KEY, "--cu", "0"], "compute units: expected 1"),
        (["predict", "--arch", "gfx942", KEY, "--miopen", "new"], "MIOpen release"),
        (["predict", "--arch", "MI300X", KEY], "arch: expected an arch such as gfx942"),
        (["predict", "--arch", "gfx942", KEY, "--family", "cudnn"], "--family: invalid choice"),
        (["predict", "--arch", "gfx942"], "no problem is given"),
        (["predict", "--arch", "gfx942", KEY, "--log", "a"], "don't go together"),
        (["predict", "--arch", "gfx942", "--from", ""], "this is a directory"),
        (["predict", "--arch", "", KEY], "arch: expected an arch such as gfx942"),
        (["predict", "--arch", "gfx942", "--from", "no/such"], "no/such: there is no such file"),
        (["predict", "--arch", "gfx942", "--log", "no/such"], "no/such: there is no such file"),
        (
            ["predict", "--arch", "gfx942", "./bin/MIOpenDriver", "conv", "-n", "2"],
            "put a driver line in quotes",
        ),
        (["db"], "the following arguments are required: FILE"),
        (["db", "no/such"], "no/such: there is no such file"),
        (["dataset", "no/such", "--out", "a.parquet"], "no/such: there is no such folder"),
        (["train", "miopen", "--db", "no/such", "--arch", "gfx942"], "there is no such folder"),
        (["train", "miopen", "--db", ".", "--arch", "gfx942", "--share", "0"], "--share"),
        (["train", "miopen", "--db", ".", "--arch", "gfx942", "--workers", "-1"], "--workers"),
        (["compare", "miopen", "--find-db", "no/such", "--arch", "gfx942"], "no such file"),
        *(
            (
                ["compare", "miopen", "--find-db", "a", "--arch", "gfx942", option, value],
                option.strip("-"),
            )
            for option, value in (("--risk", "nan"), ("--risk", "1"), ("--cu", "0"), ("--cu", "-5"))
        ),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, error = capsys.readouterr()
    assert not out
    assert error.startswith("foretune: error: ")
    assert error.count("\n") == 1
    assert message in error


@pytest.mark.parametrize(
    ("package", "arguments"),
    [
        ("pandas", ["dataset", ".", "--out", "a.parquet"]),
        ("lightgbm", ["train", "miopen", "--db", ".", "--arch", "gfx942"]),
        ("pandas", ["compare", "miopen", "--find-db", "a", "--arch", "gfx942"]),
    ],
)
def test_a_missing_extra_is_named(package: str, arguments: list[str]) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from foretune.cli import main; "
    run = subprocess.run(
        [sys.executable, "-c", f"{code} sys.exit(main({arguments!r}))"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert "needs foretune[train]: pip install 'foretune[train]'" in run.stderr
    assert run.stderr.count("\n") == 1


def test_a_reader_that_leaves_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run(
        [*COMMAND, "predict", "--arch", "gfx942", "--json", KEY],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert run.returncode == 141
    assert not run.stderr


def test_each_line_of_a_pipe_is_answered_as_it_comes_until_interrupted() -> None:
    with subprocess.Popen(
        [*COMMAND, "predict", "--arch", "gfx942", "--json", "--from", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A job in the background starts with interrupts ignored, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        for _ in range(2):
            process.stdin.write(f"{KEY}\n")
            process.stdin.flush()
            assert process.stdout.readline().startswith(f'{{"problem": "{KEY}"')
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert not process.stderr.read()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["predict", "--arch", "gfx1100", "--json", KEY]])
def test_a_full_disk_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        run = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert run.returncode == 1
    assert run.stderr.startswith("foretune: error: ")
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [
        ("<&-", ["predict", "--arch", "gfx1100", "--from", "-"], 2),
        (">&-", ["predict", "--arch", "gfx1100", "--json", KEY], 0),
        ("2>&-", ["predcit"], 2),
    ],
)
def test_a_closed_stream_takes_nothing_from_the_others(
    closed: str, arguments: list[str], code: int
) -> None:
    run = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == code
    assert not run.stdout
    assert run.stderr.count("\n") == (closed == "<&-")


def test_a_terminal_of_few_letters_is_shown_their_codes() -> None:
    run = subprocess.run(
        [*COMMAND, "predict", "--arch", "gfx1100", "\u00e9"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "1"},
    )
    assert run.returncode == 2
    assert "\\xe9" in run.stdout
    assert not run.stderr


def test_an_answer_imports_no_learning_library() -> None:
    code = (
        "import sys; from foretune.cli import main; "
        f"code = main(['predict', '--arch', 'gfx942', '--json', {KEY!r}]); "
        f"print(sorted({LEARNING!r} & set(sys.modules)), code)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[] 0"


def test_importing_foretune_imports_nothing_more() -> None:
    code = "import sys, foretune; print([n for n in sys.modules if n.startswith('foretune.')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_installed_command_is_this_one(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("foretune")
    run = subprocess.run(
        [command, "--version"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert run.stdout.startswith("foretune ")
