"""`foretune warm` and `foretune unwarm`."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from foretune.cli import main
from foretune.miopen.installation import Installation
from foretune.miopen.lock import lock_files
from foretune.miopen.user_db import parse_release
from tests.miopen.miopen_rules import Machine, read_find_db, read_perf_db

LAYER = (
    "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convfp16 -n 64 -c 256 -H 14 -W 14 "
    "-k 256 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F {} -t 1\n"
)
LOG = (
    "start\n"
    + LAYER.format(1) * 3
    + LAYER.format(2)
    + LAYER.format(4)
    + "./bin/MIOpenDriver pool -n 1\n"
    # More channels than anything that was learnt.
    + LAYER.format(1).replace("-c 256", "-c 1000000")
)
BASE = "gfx942130.HIP.3_3_0_abc1234"
WHERE = ("--arch", "gfx942", "--cu", "304", "--miopen", "3.3.0.abc1234")
MACHINE = Machine("gfx942", (3, 3))

Json = Callable[..., dict[str, object]]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A program's log, on a machine without a MIOpen and with a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("MIOPEN_USER_DB_PATH", raising=False)
    monkeypatch.setattr("foretune.cli.warm.find_installation", lambda: None)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "program.log"
    path.write_text(LOG)
    return str(path)


@pytest.fixture
def to_json(capsys: pytest.CaptureFixture[str]) -> Json:
    """Run the command with --json, and give what it says."""

    def run(*arguments: str, code: int = 0) -> dict[str, object]:
        assert main([*arguments, "--json"]) == code
        record: dict[str, object] = json.loads(capsys.readouterr().out)
        return record

    return run


def test_a_log_warms_the_folder_that_miopen_uses(log: str, tmp_path: Path, to_json: Json) -> None:
    folder = tmp_path / "home" / ".config" / "miopen"
    record = to_json("warm", log, *WHERE)
    assert record["find_db"] == str(folder / f"{BASE}.ufdb.txt")
    assert (record["problems"], record["calls"], record["unsure"]) == (4, 6, 1)
    assert record["written"] == 3
    find = (folder / f"{BASE}.ufdb.txt").read_text()
    perf = folder / f"{BASE}.udb.txt"
    assert find.count("\n") == 3
    assert list(read_find_db(find, MACHINE)) == []
    assert list(read_perf_db(perf.read_text() if perf.exists() else "", MACHINE)) == []
    again = to_json("warm", log, *WHERE)
    assert (again["written"], again["unchanged"]) == (0, 3)
    assert (folder / f"{BASE}.ufdb.txt").read_text() == find
    taken = to_json("unwarm")
    assert taken["folder"] == str(folder)
    assert sorted(folder.iterdir()) == [folder / "miopen-lockfiles"]
    assert to_json("unwarm")["databases"] == []


def test_it_says_what_it_does(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warm", log, *WHERE, "--out", "db"]) == 0
    out, error = capsys.readouterr()
    assert "gfx942 with 304 units, MIOpen 3.3.0.abc1234, stated risk 0.05" in out
    assert f"db/{BASE}.ufdb.txt" in out
    assert "4 convolutions, asked for 6 times" in out
    assert "kernels are still compiled on first use" in out
    assert "~/.cache/miopen/3.3.0.abc1234" in out
    assert f"MIOPEN_USER_DB_PATH={Path.cwd() / 'db'}" in out
    assert "no find-db of this MIOpen was looked at" in out
    assert "the folder db was not there and was made" in out
    assert "1 pool" in out
    assert not error
    assert main(["unwarm", "--out", "db"]) == 0
    assert "taken out" in capsys.readouterr().out
    assert main(["unwarm", "--out", "db"]) == 0
    assert "wrote nothing" in capsys.readouterr().out


def test_a_dry_run_shows_and_writes_nothing(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.iterdir())
    assert main(["warm", log, *WHERE, "--dry-run", "--unsure", "list"]) == 0
    out = capsys.readouterr().out
    assert out.count("-NCHW-FP16-") >= 3
    assert ",miopenConvolutionFwdAlgo" in out
    assert sorted(tmp_path.iterdir()) == before
    assert main(["warm", log, *WHERE, "--out", "db"]) == 0
    files = {path.name: path.read_text() for path in (tmp_path / "db").glob("*.*")}
    capsys.readouterr()
    assert main(["unwarm", "--out", "db", "--dry-run"]) == 0
    assert "would go" in capsys.readouterr().out
    assert files == {path.name: path.read_text() for path in (tmp_path / "db").glob("*.*")}


def test_a_lower_risk_writes_less(log: str, to_json: Json) -> None:
    none = to_json("warm", log, *WHERE, "--out", "db", "--risk", "0.0001")
    assert (none["written"], none["unsure"]) == (0, 4)
    some = to_json("warm", log, *WHERE, "--out", "db")
    assert (some["written"], some["unsure"]) == (3, 1)
    none = to_json("warm", log, *WHERE, "--out", "db", "--risk", "0.0001")
    assert (none["written"], none["withdrawn"]) == (0, 3)
    assert not Path("db", f"{BASE}.ufdb.txt").exists()


def test_what_is_unsure_is_measured_by_a_script(log: str, tmp_path: Path, to_json: Json) -> None:
    record = to_json(
        "warm", log, *WHERE, "--out", "db", "--risk", "0.0001", "--unsure", "list", "--script", "t"
    )
    assert record["script"] == "t"
    assert isinstance(record["estimate_seconds"], float)
    assert record["estimate_seconds"] > 0
    assert "compiling" in str(record["estimate_basis"])
    script = Path("t").read_text()
    assert script.count("\ntune convfp16 ") == 4
    # A driver that does what MIOpen's does with the settings: it adds to the user find-db.
    driver = tmp_path / "driver"
    driver.write_text(
        '#!/bin/sh\necho "$MIOPEN_FIND_MODE $MIOPEN_FIND_ENFORCE $*" >>calls\n'
        f'echo "key=fft:1,0,x" >>"$MIOPEN_USER_DB_PATH/{BASE}.ufdb.txt"\n'
    )
    driver.chmod(0o755)
    environment = {**os.environ, "MIOPEN_DRIVER": str(driver)}
    ran = subprocess.run(["./t"], env=environment, capture_output=True, text=True, check=True)
    assert "4 of 4 commands ended well" in ran.stdout
    calls = Path("calls").read_text().splitlines()
    assert len(calls) == 4
    assert calls[0].startswith("1 3 convfp16 -n 64 -c 256 -H 14 -W 14 -k 256 ")
    # One that writes elsewhere, as that of another release does.
    driver.write_text("#!/bin/sh\n")
    Path("db", f"{BASE}.ufdb.txt").unlink()
    ran = subprocess.run(["./t"], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "did the driver load MIOpen 3.3.0.abc1234?" in ran.stderr


def test_the_users_measurements_are_no_longer_asked_for(log: str, to_json: Json) -> None:
    first = to_json("warm", log, *WHERE, "--out", "db", "--risk", "0.0001")
    assert isinstance(first["not_written"], list)
    lines = [f"{entry['problem']}=fft:1,0,mine\n" for entry in first["not_written"]]
    Path("db", f"{BASE}.ufdb.txt").write_text("".join(lines))
    record = to_json("warm", log, *WHERE, "--out", "db", "--unsure", "list")
    assert (record["kept"], record["written"], record["unsure"]) == (4, 0, 0)
    assert record["not_written"] == []
    assert Path("db", f"{BASE}.ufdb.txt").read_text() == "".join(lines)


def test_the_installed_miopen_says_what_is_not(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to_json: Json
) -> None:
    first = to_json("warm", log, *WHERE, "--out", "db")
    shipped = tmp_path / "share"
    shipped.mkdir()
    assert isinstance(first["entries"], list)
    key = first["entries"][0]["find"].partition("=")[0]
    (shipped / "gfx942130.HIP.fdb.txt").write_text(f"{key}=fft:1,0,theirs\n")
    installed = Installation(Path("lib"), parse_release("3.3.0.abc1234"), shipped)
    monkeypatch.setattr("foretune.cli.warm.find_installation", lambda: installed)
    record = to_json("warm", log, "--arch", "gfx942", "--out", "db")
    assert (record["miopen"], record["system"], record["withdrawn"]) == ("3.3.0.abc1234", 1, 1)
    assert (record["unchanged"], record["written"]) == (2, 0)
    other = to_json("warm", log, "--arch", "gfx942", "--miopen", "3.4.0.", "--out", "db")
    assert other["system"] == 0
    named = to_json("warm", log, "--arch", "gfx942", "--miopen", "3.4.0.", "--system", str(shipped))
    assert named["system"] == 1
    # A library that doesn't say its release is taken for the one that is named.
    installed = Installation(Path("lib"), None, shipped)
    assert to_json("warm", log, *WHERE, "--out", "unnamed")["system"] == 1
    assert main(["warm", log, "--arch", "gfx942", "--out", "unnamed"]) == 2


def test_another_process_is_waited_for_and_named(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["warm", log, *WHERE, "--out", "db"]) == 0
    before = Path("db", f"{BASE}.ufdb.txt").read_text()
    path = lock_files(f"db/{BASE}.ufdb.txt")[0]
    hold = (
        "import fcntl, sys; file = open(sys.argv[1], 'a'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path / path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stdin
        process.stdout.readline()
        capsys.readouterr()
        for verb in (["warm", log, *WHERE], ["unwarm"]):
            assert main([*verb, "--out", "db", "--timeout", "0.1"]) == 2
            error = capsys.readouterr().err
            assert f"foretune: waiting for the database, which process {process.pid} (" in error
            assert f"is held by process {process.pid}" in error
        process.stdin.close()
    assert Path("db", f"{BASE}.ufdb.txt").read_text() == before
    with path.open("a") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--arch", "gfx1100"], ["no model for gfx1100", "gfx908, gfx90a, gfx942"]),
        (["--arch", "MI300"], ["expected an arch such as gfx942"]),
        (["--miopen", "2.20.0"], ["isn't known", "3.3, 3.4, 3.5 and 3.6"]),
        (["--miopen", "4.0.0."], ["isn't known", "3.3, 3.4, 3.5 and 3.6"]),
        (["--miopen", "new"], ["three numbers", "3.3, 3.4, 3.5 and 3.6"]),
        (["--miopen", "3.4.0"], ["tweak of MIOpen 3.4.0", "--miopen 3.4.0."]),
        (["--out", "a/b"], ["no such folder"]),
        (["--out", ""], ["--out: is empty"]),
        (["--out", "program.log"], ["this is no folder"]),
        (["--out", "/proc"], ["can't be written", "--out FOLDER"]),
        (["--system", "none"], ["none: there is no such folder"]),
        (["--script", "t"], ["--unsure list"]),
        (["--unsure", "list", "--script", "a/b"], ["a/b: can't be written"]),
        (["--risk", "2"], ["share between 0 and 1"]),
        (["--input", "1x3x8x8"], ["for a model"]),
        (["--cu", "0"], ["compute units", "1 to 4095"]),
        (["--models", "none"], ["none: there is no such folder of models"]),
        (["--timeout", "-1"], ["timeout: expected seconds"]),
        (["--timeout", "nan"], ["timeout: expected seconds"]),
    ],
)
def test_bad_arguments_are_told_in_one_line(
    log: str, capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]
) -> None:
    before = set(Path().rglob("*"))
    assert main(["warm", log, *WHERE, "--out", ".", *arguments]) == 2
    out, error = capsys.readouterr()
    assert not out
    assert set(Path().rglob("*")) == before
    for word in words:
        assert word in error
    assert error.startswith("foretune: error: ")
    assert error.count("\n") == 1


def test_without_a_gpu_and_a_miopen_both_are_asked_for(
    log: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("foretune.cli.warm.find_gpu", lambda: None)
    assert main(["warm", log, "--miopen", "3.3.0."]) == 2
    assert "archs with a model are gfx908, gfx90a, gfx942" in capsys.readouterr().err
    assert main(["warm", log, "--arch", "gfx942"]) == 2
    assert "there is no MIOpen on this machine" in capsys.readouterr().err


def test_a_network_folder_is_told(
    log: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("foretune.miopen.user_db", "foretune.cli.warm"):
        monkeypatch.setattr(f"{module}.network_file_system", lambda *_: "nfs4")
    assert main(["warm", log, *WHERE]) == 2
    error = capsys.readouterr().err
    assert "silently uses a temporary folder" in error
    assert "--out FOLDER" in error
    assert main(["warm", log, *WHERE, "--out", "db"]) == 0
    assert "is on a network file system (nfs4)" in capsys.readouterr().out


def test_entries_of_the_users_that_miopen_fails_on_are_told(
    log: str, capsys: pytest.CaptureFixture[str], to_json: Json
) -> None:
    keys = [
        entry["find"].partition("=")[0]
        for entry in cast("list[dict[str, str]]", to_json("warm", log, *WHERE)["entries"])
    ]
    database = Path("db", f"{BASE}.ufdb.txt")
    database.parent.mkdir()
    for key in keys:
        word = {"F": "Fwd", "B": "BwdData", "W": "BwdWeights"}[key[-1]]
        other = "BwdData" if word == "Fwd" else "Fwd"
        for values, is_usable in (
            (f"A:1,0,miopenConvolution{word}AlgoGEMM", True),
            (f"miopenConvolution{word}AlgoGEMM:A,1,0,x,y", True),
            (f"A:1,0,miopenConvolution{word}AlgoGEMM;B:1,0", False),
            (f"A:1,0,miopenConvolution{other}AlgoGEMM", False),
            ("A:1,0,", False),
            ("A", False),
            ("", False),
        ):
            database.write_text(f"{key}={values}\n")
            assert main(["warm", log, *WHERE, "--out", "db", "--dry-run"]) == 0
            out = capsys.readouterr().out
            assert ("1 of your own entries" in out) != is_usable
            assert (f"The first is {key}" in out) != is_usable


def test_a_log_without_convolutions_says_how_to_get_some(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(log).write_text("nothing here\n")
    assert main(["warm", log, *WHERE, "--out", "db"]) == 2
    assert "MIOPEN_ENABLE_LOGGING_CMD=1" in capsys.readouterr().err
    assert not Path("db").exists()


def test_lines_that_cannot_be_read_cost_themselves(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(log).write_text(LOG + "./bin/MIOpenDriver convfp16 -n 0\n")
    assert main(["warm", log, *WHERE, "--out", "db"]) == 2
    out, error = capsys.readouterr()
    assert "written" in out
    assert "program.log, line 9: " in error


def test_several_sources_add_up(log: str, to_json: Json) -> None:
    Path("keys").write_text("64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F\n")
    record = to_json("warm", log, "keys", *WHERE, "--out", "db")
    assert (record["problems"], record["calls"]) == (5, 7)
