"""MIOpen's lock is respected, and taken so that MIOpen respects it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from foretune.errors import InputError
from foretune.miopen.lock import Holder, database_lock, temporary_folder

# What Boost's file_lock does, in a process of its own: POSIX record locks die with their process.
HOLD = """
import fcntl, sys
file = open(sys.argv[1], "a+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
TRY = """
import fcntl, sys
file = open(sys.argv[1], "a+")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit(3)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def database(tmp_path: Path) -> Path:
    folder = tmp_path / "db"
    folder.mkdir()
    return folder / "gfx942130.HIP.3_3_0_.ufdb.txt"


def lock_of_old_releases(database: str) -> Path:
    folder, name = database.rsplit("/", 1)
    digest = hashlib.md5(folder.encode()).hexdigest()
    return temporary_folder() / "miopen-lockfiles" / f"{digest}_{name}.lock"


def lock_of_new_releases(database: str) -> Path:
    folder, name = database.rsplit("/", 1)
    return Path(folder) / "miopen-lockfiles" / f"{name}.lock"


LOCKS = (lock_of_old_releases, lock_of_new_releases)


@contextmanager
def holding(path: Path) -> Iterator[int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    try:
        assert process.stdout.readline() == "held\n"
        yield process.pid
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def is_free(path: Path) -> bool:
    return subprocess.run([sys.executable, "-c", TRY, str(path)], check=False).returncode == 0


@pytest.mark.parametrize("lock", LOCKS)
def test_miopen_waits_for_it(database: Path, lock: object) -> None:
    assert callable(lock)
    path = lock(str(database))
    with database_lock(database):
        assert not is_free(path)
    assert is_free(path)
    # Nothing is left that keeps other nodes out.
    assert [found.name for found in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("lock", LOCKS)
def test_it_waits_for_miopen_and_says_for_whom(database: Path, lock: object) -> None:
    assert callable(lock)
    told: list[Holder] = []
    held = holding(lock(str(database)))
    process = held.__enter__()
    with (
        pytest.raises(InputError, match=rf"held by process {process} \(.*python"),
        database_lock(database, timeout=0.1, waiting=told.append),
    ):
        pytest.fail("two hold the lock")
    held.__exit__(None, None, None)
    assert [holder.process for holder in told] == [process]
    with database_lock(database, timeout=0.1, waiting=told.append):
        assert len(told) == 1


def test_it_gets_the_lock_when_the_other_lets_go(database: Path) -> None:
    held = holding(lock_of_old_releases(str(database)))
    held.__enter__()
    told = []

    def let_go(holder: Holder) -> None:
        told.append(holder)
        held.__exit__(None, None, None)

    with database_lock(database, timeout=60, waiting=let_go):
        assert len(told) == 1


def test_the_folders_own_spelling_counts(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(database.parent.parent)
    for spelled in ("db", "./db", str(database.parent)):
        name = f"{spelled}/{database.name}"
        with database_lock(name):
            assert not is_free(lock_of_old_releases(name))
            assert not is_free(lock_of_old_releases(str(database)))


def test_other_nodes_links_are_respected(database: Path) -> None:
    lock = lock_of_new_releases(str(database))
    lock.parent.mkdir()
    link = Path(f"{lock}.fslock")
    theirs = Path(f"{link}.node7.4711")
    theirs.touch()
    link.hardlink_to(theirs)
    with (
        pytest.raises(InputError, match="process 4711 on node7"),
        database_lock(database, timeout=0.1),
    ):
        pytest.fail("two hold the lock")
    assert link.samefile(theirs)
    # Its owner keeps it fresh as long as it lives.
    os.utime(link, (0, 0))
    with database_lock(database, timeout=0.1):
        assert not link.samefile(theirs)
    assert not link.exists()


def test_a_lock_file_that_cannot_be_made_is_told(temporary: Path, database: Path) -> None:
    (temporary / "miopen-lockfiles").touch()
    with pytest.raises(InputError, match="lock file can't be used"), database_lock(database):
        pytest.fail("there is no lock")


@pytest.mark.parametrize("name", ["TMPDIR", "TMP", "TEMP", "TEMPDIR"])
def test_the_temporary_folder_is_that_of_cxx(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for other in ("TMPDIR", "TMP", "TEMP", "TEMPDIR"):
        monkeypatch.delenv(other, raising=False)
    assert str(temporary_folder()) == "/tmp"
    monkeypatch.setenv(name, "/somewhere")
    assert str(temporary_folder()) == "/somewhere"
