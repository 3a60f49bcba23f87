"""The store: many processes, network file systems, and nothing stale."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import foretune
from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.found import Found, FoundSolution, LeftOut
from foretune.kernels.problem_text import format_problem
from foretune.kernels.records import BannedCandidate, MeasuredCandidate
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.store import Store, context_id

DEVICE = DeviceProperties(
    "cuda", "NVIDIA H200", "sm_90", 132, 32, 49152, 1024, driver="13.0", compiler="NVRTC 13.0"
)
PROBLEM = ConvProblem("F", 1, 3, (8, 8), 4, (3, 3))


def found(problem: ConvProblem = PROBLEM, time_ms: float = 1.5) -> Found:
    small = FoundSolution("ConvNaive", "THREADS=64", 2 * time_ms, 1.0, 2.0, 7, 0)
    large = FoundSolution("ConvSplit", "", time_ms, 1.0, 2.0, 7, 4096, False, True)
    return Found(problem, DEVICE.name, (large, small), (LeftOut("ConvOther", "no"),), 3.0)


def network_mounts(tmp_path: Path, kind: str = "nfs4") -> Path:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "1 0 0:1 / / rw - overlay overlay rw\n"
        f"2 1 0:2 / {tmp_path.resolve()} rw - {kind} server:/home rw\n"
    )
    return mounts


@pytest.fixture(params=["local", "network"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    mounts = network_mounts(tmp_path) if request.param == "network" else tmp_path / "none"
    return Store(tmp_path / "store" / "found.db", mounts)


def test_an_answer_comes_back(store: Store) -> None:
    assert store.get(PROBLEM, DEVICE) is None
    store.put(found(), DEVICE)
    assert store.get(PROBLEM, DEVICE) == replace(found(), is_stored=True)
    store.put(found(time_ms=0.5), DEVICE)
    store.close()
    again = store.get(PROBLEM, DEVICE)
    assert again is not None
    assert again.solutions[0].time_ms == 0.5


@pytest.mark.parametrize(
    "change",
    [
        {"driver": "13.1"},
        {"compiler": "NVRTC 13.1"},
        {"arch": "sm_100"},
        {"backend": "opencl"},
        {"compute_units": 114},
        {"name": "NVIDIA H100"},
    ],
)
def test_what_was_found_elsewhere_is_never_served(store: Store, change: dict[str, str]) -> None:
    store.put(found(), DEVICE)
    assert store.get(PROBLEM, replace(DEVICE, **change)) is None  # type: ignore[arg-type]
    assert store.get(ConvProblem("B", 1, 3, (8, 8), 4, (3, 3)), DEVICE) is None


def test_another_version_of_foretune_is_stale(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(found(), DEVICE)
    monkeypatch.setattr(foretune, "__version__", "99.0")
    context_id.cache_clear()
    try:
        assert store.get(PROBLEM, DEVICE) is None
    finally:
        context_id.cache_clear()


def test_conditions_are_kept(store: Store) -> None:
    store.put(found(), DEVICE)
    limited = store.get(PROBLEM, DEVICE, workspace_limit=100)
    assert limited is not None
    assert [solution.solver for solution in limited.solutions] == ["ConvNaive"]
    exact = store.get(PROBLEM, DEVICE, deterministic=True)
    assert exact is not None
    assert [solution.solver for solution in exact.solutions] == ["ConvNaive"]
    store.put(found(), DEVICE, workspace_limit=100, deterministic=True)
    assert store.get(PROBLEM, DEVICE) is None
    assert store.get(PROBLEM, DEVICE, workspace_limit=100) is None
    assert store.get(PROBLEM, DEVICE, workspace_limit=4096, deterministic=True) is None
    assert store.get(PROBLEM, DEVICE, workspace_limit=50, deterministic=True) is not None


def measured(time_ms: float = 1.5, config: str = "THREADS=64") -> MeasuredCandidate:
    return MeasuredCandidate("ConvNaive", config, time_ms, 1.0, 2.0, 7, 0, False, 1.25)


BANNED = BannedCandidate("ConvSplit", format_problem(PROBLEM), "crashed: SIGSEGV")


def test_single_candidates_are_no_answer_of_find(store: Store) -> None:
    slow, fast = measured(2.0), measured(1.0, "THREADS=128")
    store.put_measured(PROBLEM, [slow, fast], DEVICE)
    assert store.get(PROBLEM, DEVICE) is None
    store.close()
    assert store.measured(PROBLEM, DEVICE) == (fast, slow)
    store.put_measured(PROBLEM, [measured(0.5)], DEVICE)
    assert [one.time_ms for one in store.measured(PROBLEM, DEVICE)] == [0.5, 1.0]
    assert store.latest(DEVICE, 1) == (measured(0.5),)
    assert store.measured(PROBLEM, replace(DEVICE, driver="13.1")) == ()
    assert store.measured(ConvProblem("B", 1, 3, (8, 8), 4, (3, 3)), DEVICE) == ()


def test_a_ban_holds_for_its_device(store: Store) -> None:
    assert store.banned(DEVICE) == {}
    store.ban(BANNED, DEVICE)
    store.close()
    assert store.banned(DEVICE) == {"ConvSplit": BANNED}
    assert store.banned(replace(DEVICE, compiler="NVRTC 13.1")) == {}


def test_a_problem_can_be_forgotten(store: Store) -> None:
    other = ConvProblem("B", 1, 3, (8, 8), 4, (3, 3))
    for problem in (PROBLEM, other):
        store.put(found(problem), DEVICE)
        store.put_measured(problem, [measured()], DEVICE)
    store.ban(BANNED, DEVICE)
    store.forget(PROBLEM, DEVICE)
    store.close()
    assert store.get(PROBLEM, DEVICE) is None
    assert store.measured(PROBLEM, DEVICE) == ()
    assert store.banned(DEVICE) == {}
    assert store.get(other, DEVICE) is not None
    assert store.measured(other, DEVICE) == (measured(),)
    assert len(list(store.contents())) == 2
    store.put(found(), DEVICE)
    assert store.get(PROBLEM, DEVICE) is not None


def test_all_that_was_measured_comes_with_its_device(store: Store) -> None:
    store.put(found(), DEVICE)
    store.put_measured(PROBLEM, [measured()], replace(DEVICE, name="NVIDIA H100"))
    store.ban(BANNED, DEVICE)
    contents = {facts["name"]: kept for facts, kept in store.contents()}
    assert contents[DEVICE.name] == replace(found(), is_stored=True)
    (only,) = contents["NVIDIA H100"].solutions
    assert (only.solver, only.config, only.time_ms) == ("ConvNaive", "THREADS=64", 1.5)
    assert contents["NVIDIA H100"].problem == PROBLEM


_WRITER = """
import sys
from pathlib import Path
from tests.kernels.test_store import DEVICE, PROBLEM, found, measured
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.store import Store
path, mounts, number = sys.argv[1:]
store = Store(path, Path(mounts))
for batch in range(1, 31):
    store.put(found(ConvProblem("F", batch, 3, (8, 8), 4 * (1 + int(number)), (3, 3))), DEVICE)
    store.put(found(time_ms=batch), DEVICE)
    store.put_measured(PROBLEM, [measured(batch, f"THREADS={number}{batch}")], DEVICE)
"""


def test_many_processes_write_at_once(store: Store) -> None:
    mounts = str(store._mounts)
    root = str(Path(__file__).parents[2])
    processes = [
        subprocess.Popen([sys.executable, "-c", _WRITER, store.path, mounts, str(number)], cwd=root)
        for number in range(8)
    ]
    assert [process.wait() for process in processes] == [0] * 8
    assert len(store.measured(PROBLEM, DEVICE)) == 8 * 30
    for number in range(8):
        for batch in range(1, 31):
            problem = ConvProblem("F", batch, 3, (8, 8), 4 * (1 + number), (3, 3))
            assert store.get(problem, DEVICE) is not None
    last = store.get(PROBLEM, DEVICE)
    assert last is not None
    assert last.solutions[0].time_ms in range(1, 31)


def test_many_processes_put_a_broken_file_aside_once(tmp_path: Path) -> None:
    path = tmp_path / "found.db"
    path.write_bytes(b"this is no database, but long enough to be taken for one" * 40)
    root = str(Path(__file__).parents[2])
    words = [sys.executable, "-c", _WRITER, str(path), "none"]
    processes = [subprocess.Popen([*words, str(number)], cwd=root) for number in range(8)]
    assert [process.wait() for process in processes] == [0] * 8
    store = Store(path)
    assert len(store.measured(PROBLEM, DEVICE)) == 8 * 30
    assert not store.is_in_trouble
    assert path.with_name("found.db.broken").read_bytes().startswith(b"this is no database")


def test_a_writer_that_is_killed_leaves_a_store_that_can_be_read(store: Store) -> None:
    root = str(Path(__file__).parents[2])
    words = [sys.executable, "-c", _WRITER.replace("range(1, 31)", "range(1, 10**9)"), store.path]
    process = subprocess.Popen([*words, str(store._mounts), "0"], cwd=root)
    try:
        while len(store.measured(PROBLEM, DEVICE)) < 20:
            assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    store.close()
    kept = len(store.measured(PROBLEM, DEVICE))
    assert kept >= 20
    store.put(found(), DEVICE)
    assert store.get(PROBLEM, DEVICE) == replace(found(), is_stored=True)
    assert store.note == "" or "network" in store.note


def test_a_network_file_system_is_told_and_works(tmp_path: Path) -> None:
    store = Store(tmp_path / "found.db", network_mounts(tmp_path))
    store.put(found(), DEVICE)
    assert "network file system (nfs4)" in store.note
    assert not store.is_in_trouble
    assert "FORETUNE_CACHE" in store.note
    assert not (tmp_path / "found.db").exists()
    (own,) = (tmp_path / "found.db.d").glob("*.jsonl")
    with own.open("a") as file:
        file.write('["half of a li')
    other = Store(tmp_path / "found.db", network_mounts(tmp_path))
    assert other.get(PROBLEM, DEVICE) is not None
    store.put(found(time_ms=0.25), DEVICE)
    again = other.get(PROBLEM, DEVICE)
    assert again is not None
    assert again.solutions[0].time_ms == 0.25


def test_a_local_file_is_a_database(tmp_path: Path) -> None:
    store = Store(tmp_path / "found.db", tmp_path / "none")
    store.put(found(), DEVICE)
    assert store.note == ""
    database = sqlite3.connect(tmp_path / "found.db")
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    (facts,) = database.execute("SELECT facts FROM context").fetchone()
    assert json.loads(facts)["driver"] == "13.0"
    plan = database.execute(
        "EXPLAIN QUERY PLAN SELECT answer FROM found WHERE context = '' AND problem = ''"
    ).fetchone()
    assert "PRIMARY KEY" in plan[3]
    database.close()


def test_a_broken_file_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "found.db"
    path.write_bytes(b"this is no database, but long enough to be taken for one" * 40)
    store = Store(path, tmp_path / "none")
    store.put(found(), DEVICE)
    assert "found.db.broken" in store.note
    assert store.is_in_trouble
    assert store.get(PROBLEM, DEVICE) is not None


def _spoilt_pages(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xaa" * (len(content) - 4096)
    path.write_bytes(content)


def _other_tables(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE found (something TEXT)")


@pytest.mark.parametrize("spoil", [_spoilt_pages, _other_tables])
def test_a_file_with_a_broken_inside_is_put_aside(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    path = tmp_path / "found.db"
    first = Store(path, tmp_path / "none")
    first.put(found(), DEVICE)
    first.close()
    spoil(path)
    store = Store(path, tmp_path / "none")
    assert store.get(PROBLEM, DEVICE) is None
    assert "found.db.broken" in store.note
    store.put(found(), DEVICE)
    assert store.get(PROBLEM, DEVICE) is not None


@pytest.mark.parametrize("answer", ["{}", "no JSON", "[1, 2]", '{"found": {"problem": 3}}'])
def test_an_answer_that_cannot_be_read_is_none(tmp_path: Path, answer: str) -> None:
    store = Store(tmp_path / "found.db", tmp_path / "none")
    store.put(found(), DEVICE)
    with closing(sqlite3.connect(tmp_path / "found.db", isolation_level=None)) as database:
        database.execute("UPDATE found SET answer = ?", (answer,))
    assert store.get(PROBLEM, DEVICE) is None
    store.put(found(), DEVICE)
    assert store.get(PROBLEM, DEVICE) is not None


def test_an_answer_that_cannot_be_kept_is_told_and_not_lost(tmp_path: Path) -> None:
    store = Store(tmp_path / "found.db", tmp_path / "none")
    assert store.get(PROBLEM, DEVICE) is None
    with closing(sqlite3.connect(tmp_path / "found.db", isolation_level=None)) as database:
        database.execute(
            "CREATE TRIGGER full BEFORE INSERT ON found BEGIN SELECT RAISE(FAIL, 'full'); END"
        )
        store.put(found(), DEVICE)
        assert "can't be written (full)" in store.note
        database.execute("DROP TRIGGER full")
    store.put(found(), DEVICE)
    assert store.get(PROBLEM, DEVICE) is not None


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "found.db", tmp_path / "none")
    with pytest.raises(InputError, match="FORETUNE_CACHE"):
        store.get(PROBLEM, DEVICE)
