"""Archives open, break and close as they should."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.miopen.archive import (
    IssueLog,
    open_archive,
    read_all,
    read_lines,
    replace_file,
    write_lines,
)

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".gz": gzip.compress,
    "": bytes,
}


def lines_of(path: Path, strict: bool = False) -> tuple[list[str], list[str]]:
    log = IssueLog(str(path), strict)
    lines = [text for _, text in read_lines(open_archive(path), log)]
    return lines, [str(issue) for issue in log.issues]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_lines_come_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    wanted = ["one", "", "zw\u00f6lf", "x" * 3_000_000, "end"]
    assert write_lines(path, wanted) == len(wanted)
    assert lines_of(path) == (wanted, [])
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".bz2", ".xz", ".gz"])
def test_an_archive_without_its_suffix_is_known_by_content(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(COMPRESS[suffix](b"one\ntwo"))
    assert lines_of(path) == (["one", "two"], [])


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_pipe_is_read_as_a_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    # It waits for a reader, and gives what it has once.
    writer = threading.Thread(
        target=path.write_bytes, args=(COMPRESS[suffix](b"one\ntwo"),), daemon=True
    )
    writer.start()
    assert lines_of(path) == (["one", "two"], [])
    writer.join()


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_byte_order_mark_is_no_text(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESS[suffix]("\ufeffone\r\n\ufefftwo".encode()))
    assert lines_of(path) == (["one", "\ufefftwo"], [])


@pytest.mark.parametrize("suffix", [".bz2", ".xz", ".gz"])
@pytest.mark.parametrize("damage", ["truncated", "overwritten"])
def test_what_came_before_the_break_is_kept(tmp_path: Path, suffix: str, damage: str) -> None:
    # Numbers that don't compress well, so that the archive has many blocks.
    wanted = [str(pow(3, n, 10**40)) for n in range(50_000 if suffix == ".bz2" else 5_000)]
    data = COMPRESS[suffix]("\n".join(wanted).encode())
    cut = len(data) * 9 // 10
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(data[:cut] + (b"\xff" * (len(data) - cut) if damage == "overwritten" else b""))
    lines, issues = lines_of(path)
    assert lines
    assert lines == wanted[: len(lines)]
    assert "breaks off" in issues[0]
    with pytest.raises(InputError, match="breaks off"):
        lines_of(path, strict=True)


def test_a_broken_archive_of_bytes_gives_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(bytes(range(256)) * 1000)[:-12])
    log = IssueLog(str(path))
    with open_archive(path) as file:
        data = read_all(file, log)
    assert (bytes(range(256)) * 1000).startswith(data)
    assert len(log.issues) == 1


def test_a_line_that_is_not_utf8_costs_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n\xff\xfe\nthree\r\n")
    lines, issues = lines_of(path)
    assert lines == ["one", "three"]
    assert issues == [f"{path}, line 2: not UTF-8; the line is skipped"]
    with pytest.raises(InputError, match="line 2"):
        lines_of(path, strict=True)


@pytest.mark.parametrize("suffix", [".bz2", ".xz", ".gz"])
def test_an_archive_of_nothing_is_empty(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(COMPRESS[suffix](b""))
    with pytest.raises(InputError, match="empty"):
        lines_of(path)


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        open_archive(tmp_path / "missing")
    with pytest.raises(InputError, match="directory"):
        open_archive(tmp_path)
    path = tmp_path / "a.bz2"
    path.touch()
    with pytest.raises(InputError, match="empty"):
        open_archive(path)
    path.write_text("plain")
    with pytest.raises(InputError, match="no such archive"):
        open_archive(path)


def test_a_file_is_replaced_only_when_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write_half() -> None:
        with replace_file(path) as temporary:
            temporary.write_text("new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(InputError, match="directory"):
        write_lines(tmp_path, ["a"])
    with pytest.raises(InputError, match="can't be written"):
        write_lines(tmp_path / "missing" / "a.txt", ["a"])


@given(
    st.binary(min_size=1, max_size=300),
    st.sampled_from([b"BZh9", b"\xfd7zXZ\x00", b"\x1f\x8b", b""]),
)
def test_noise_is_lines_or_issues(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, magic: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "noise"
    path.write_bytes(magic + noise)
    lines, issues = lines_of(path)
    assert lines or issues
