"""Names and folders as MIOpen has them; edits touch nothing else."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.miopen.ledger import Entry
from foretune.miopen.names import parse_database_name
from foretune.miopen.user_db import (
    Release,
    UserDatabase,
    default_folder,
    network_file_system,
    parse_release,
    prepare_folder,
    read_user_database,
    tweaks_in,
    user_find_db_name,
    user_perf_db_name,
    write_user_database,
)


@pytest.mark.parametrize(
    ("arch", "units", "release", "base"),
    [
        ("gfx908", 120, "3.3.0.", "gfx90878.HIP.3_3_0_"),
        ("gfx90a:sramecc+:xnack-", 104, "3.3.0.a85ca8a54-dirty",
         "gfx90a68.HIP.3_3_0_a85ca8a54-dirty"),
        ("gfx90a", 110, "3.4.0.8252-64506314e", "gfx90a6e.HIP.3_4_0_8252-64506314e"),
        ("gfx942", 304, "3_5_1_1a2b3c4", "gfx942130.HIP.3_5_1_1a2b3c4"),
        ("gfx942", 38, "3.6.2.cd117724af+mlir", "gfx942_38.HIP.3_6_2_cd117724af"),
    ],
)  # fmt: skip
def test_file_names(arch: str, units: int, release: str, base: str) -> None:
    parsed = parse_release(release)
    assert user_find_db_name(arch, units, parsed) == f"{base}.ufdb.txt"
    assert user_perf_db_name(arch, units, parsed) == f"{base}.udb.txt"
    for name in (f"{base}.ufdb.txt", f"{base}.udb.txt"):
        found = parse_database_name(name)
        assert found
        assert (found.compute_units, found.backend, found.user) == (units, "HIP", True)


@pytest.mark.parametrize("text", ["", "3", "3.3", "newest", "3.3.0.a b", "3.3.0;", "3.3.0.a.b"])
def test_what_is_no_release_is_told(text: str) -> None:
    with pytest.raises(InputError, match=r"three numbers.*known are 3\.3, 3\.4"):
        parse_release(text)


@pytest.mark.parametrize("text", ["2.20.0", "3.2.9.abc", "3.7.0", "4.0.0.abc", "9999.0.0."])
def test_a_release_older_or_newer_than_what_is_known_lists_the_known(text: str) -> None:
    with pytest.raises(InputError, match=r"known are 3\.3, 3\.4, 3\.5 and 3\.6"):
        parse_release(text)


def test_tweaks_in_names(tmp_path: Path) -> None:
    for name in (
        "gfx942130.HIP.3_3_0_a85ca8a54-dirty.ufdb.txt",
        "gfx90a68.HIP.3_3_0_a85ca8a54-dirty.udb.txt",
        "gfx90a68.HIP.3_3_0_.ufdb.txt",
        "gfx90a68.HIP.3_4_0_fff.ufdb.txt",
        "gfx90a68.HIP.3_3_0_eee.ufdb.txt.foretune",
        "gfx90a68.HIP.fdb.txt",
    ):
        (tmp_path / name).touch()
    assert tweaks_in(tmp_path, Release(3, 3, 0)) == ("", "a85ca8a54-dirty")
    assert tweaks_in(tmp_path / "none", Release(3, 3, 0)) == ()


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HOME": "/home/me"}, "/home/me/.config/miopen"),
        ({"HOME": "/home/me", "MIOPEN_USER_DB_PATH": ""}, "/home/me/.config/miopen"),
        ({"HOME": "/home/me", "MIOPEN_USER_DB_PATH": "./db/"}, "./db"),
        ({"HOME": "/home/me", "MIOPEN_USER_DB_PATH": "~/x"}, "/home/me/x"),
    ],
)
def test_the_folder_is_found_as_miopen_finds_it(environment: dict[str, str], folder: str) -> None:
    assert default_folder(environment) == folder


def test_without_a_home_the_temporary_folder_stands_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", "/somewhere")
    for home in ({}, {"HOME": ""}, {"HOME": "/"}):
        assert default_folder(home) == "/somewhere/.config/miopen"


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "afs"])
def test_a_network_file_system_is_seen(tmp_path: Path, kind: str) -> None:
    home = tmp_path / "my home"
    (home / "local").mkdir(parents=True)
    shown = str(home).replace(" ", "\\040")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        f"30 22 0:40 / {shown} rw,relatime shared:2 - {kind} server:/home rw\n"
        f"31 30 8:2 / {shown}/local rw - xfs /dev/sdb1 rw\n"
        "not a mount\n"
    )
    assert network_file_system(home / ".config" / "miopen", mounts) == kind
    assert network_file_system(home / "local" / "db", mounts) == ""
    assert network_file_system(tmp_path, mounts) == ""


def test_a_home_on_the_network_is_no_place_for_databases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"30 1 0:40 / {tmp_path} rw - nfs4 server:/home rw\n")
    monkeypatch.setattr("foretune.miopen.user_db.network_file_system", lambda path: (
        network_file_system(path, mounts)
    ))  # fmt: skip
    with pytest.raises(InputError, match=r"network file system \(nfs4\).*MIOPEN_USER_DB_PATH"):
        default_folder({"HOME": str(tmp_path)})
    # A folder that is named is used wherever it is.
    named = {"HOME": str(tmp_path), "MIOPEN_USER_DB_PATH": str(tmp_path)}
    assert default_folder(named) == str(tmp_path)


key = st.text("abcxF0123-", min_size=1, max_size=5)
solver = st.sampled_from(("fft", "ConvOclBwdWrW2<4>", "Gemm"))
values = st.text("0123,.<> [2]:", max_size=6)
line = st.one_of(
    st.builds(lambda k, v: f"{k}={v}", key, st.text("ab:;,=1", max_size=9)),
    st.text("abc:;,#\r\t ", max_size=6),
)


@settings(max_examples=60)
@given(st.lists(line, max_size=6), st.booleans(), key, solver, values)
def test_an_entry_put_in_and_taken_out_leaves_the_file_as_it_was(
    lines: list[str], ended: bool, where: str, who: str, what: str
) -> None:
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    database = UserDatabase(text)
    before, others = database.text(), list(database)
    assert before.splitlines() == text.splitlines()
    is_new = who not in database.solvers(where)
    database.put(Entry(where, who, what))
    again = UserDatabase(database.text())
    assert again.solvers(where)[who] == what
    assert [entry for entry in others if (entry.key, entry.id) != (where, who)] == [
        entry for entry in again if (entry.key, entry.id) != (where, who)
    ]
    if is_new and not (where in UserDatabase(text) and not others_of(text, where)):
        again.remove(where, who)
        assert again.text() == before


def others_of(text: str, where: str) -> bool:
    """Whether something stands behind the key's first "=", that keeps the line alive."""
    found = (one.partition("=")[2] for one in text.split("\n") if one.startswith(f"{where}="))
    return bool(next(found, ""))


def test_bytes_that_are_no_text_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.ufdb.txt"
    path.write_bytes(b"key=\xff\xfe:1\n\xe4\r\n")
    path.chmod(0o664)
    database = read_user_database(path)
    database.put(Entry("new", "fft", "1"))
    write_user_database(path, database)
    assert path.read_bytes() == b"key=\xff\xfe:1\n\xe4\r\nnew=fft:1\n"
    assert path.stat().st_mode & 0o777 == 0o664
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_running_programs_are_told_by_the_file_of_times_if_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "a.ufdb.txt"
    times = tmp_path / "a.ufdb.txt.time"
    write_user_database(path, UserDatabase("a=b:c\n"))
    assert not times.exists()
    times.write_text("17")
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    write_user_database(path, UserDatabase("a=b:d\n"))
    assert before <= int(times.read_text()) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def test_folders(tmp_path: Path) -> None:
    assert prepare_folder(str(tmp_path)) is False
    assert prepare_folder(str(tmp_path / "new")) is True
    with pytest.raises(InputError, match="no such folder"):
        prepare_folder(str(tmp_path / "a" / "b"))
    assert prepare_folder(str(tmp_path / "a" / "b"), parents=True) is True
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="no folder"):
        prepare_folder(str(tmp_path / "file"))
    with pytest.raises(InputError, match="can't be read"):
        read_user_database(tmp_path / "new")


def test_a_folder_that_cannot_be_written() -> None:
    with pytest.raises(InputError, match=r"can't be written.*--out"):
        prepare_folder("/proc")
