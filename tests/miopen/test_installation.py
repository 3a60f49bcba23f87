"""The MIOpen that a program loads is found, and read without being loaded."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from foretune.errors import InputError
from foretune.miopen.installation import (
    Installation,
    choose_release,
    find_installation,
    read_release,
)
from foretune.miopen.user_db import Release, parse_release


def library_image(constants: bytes, code: bytes = b"") -> bytes:
    """Give the bytes of a shared library with these constants and this code."""
    names = b"\0.rodata\0.text\0.shstrtab\0"
    start = 64
    parts = [(1, constants), (9, code), (15, names)]
    headers, body = [bytes(64)], b""
    for name, content in parts:
        headers.append(
            struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, start + len(body), len(content), 0, 0, 1, 0)
        )
        body += content
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head = ident + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, start + len(body), 0, 64, 0, 0, 64, len(headers), 3
    )
    return head + body + b"".join(headers)


def install(root: Path, constants: bytes, name: str = "libMIOpen.so.1.0.60300") -> Path:
    folder = root / "lib"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(library_image(constants, b"\x004.5.6.fffffff\0"))
    if name != "libMIOpen.so":
        (folder / "libMIOpen.so.1").symlink_to(name)
        (folder / "libMIOpen.so").symlink_to("libMIOpen.so.1")
    return folder


@pytest.mark.parametrize(
    ("constants", "release"),
    [
        (b"gcc\x003.3.0.a85ca8a54-dirty\0more", "3.3.0.a85ca8a54-dirty"),
        (b"3_3_0_a85ca8a54-dirty\x003.3.0.a85ca8a54-dirty\0", "3.3.0.a85ca8a54-dirty"),
        (b"MIOpen version 3.6.2.cd117724af\0", "3.6.2.cd117724af"),
        (b"1.2.3.4\x003_4_0_8252-64506314e\x00127.0.0.1\0", "3.4.0.8252-64506314e"),
        (b"2.20.0.1234567\x003.3.0.7654321\0", "3.3.0.7654321"),
    ],
)
def test_a_library_says_its_release(tmp_path: Path, constants: bytes, release: str) -> None:
    folder = install(tmp_path, constants)
    found = find_installation({}, [folder])
    assert found
    assert found.release == parse_release(release)
    assert found.system_folder == tmp_path / "share" / "miopen" / "db"


@pytest.mark.parametrize(
    "constants", [b"", b"3.3.0\0", b"3.3.0.1234567\x003.4.0.1234567\0", b"2.20.0.1234567\0"]
)
def test_a_library_that_does_not_say_it(tmp_path: Path, constants: bytes) -> None:
    found = find_installation({}, [install(tmp_path, constants)])
    assert found
    assert found.release is None
    with pytest.raises(InputError, match=r"doesn't say.*--miopen.*known are"):
        choose_release(None, found, tmp_path)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF\x02" + b"\xff" * 80, b"text" * 40])
def test_files_that_are_no_library(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "libMIOpen.so"
    path.write_bytes(content)
    assert read_release(path) is None


def test_the_header_says_it_too(tmp_path: Path) -> None:
    folder = install(tmp_path, b"")
    header = tmp_path / "include" / "miopen"
    header.mkdir(parents=True)
    (header / "version.h").write_text(
        "#pragma once\n#define MIOPEN_VERSION_MAJOR 3\n#define MIOPEN_VERSION_MINOR 5\n"
        "#define MIOPEN_VERSION_PATCH 1\n#define MIOPEN_VERSION_TWEAK 1a2b3c4d5\n"
    )
    found = find_installation({"MIOPEN_SYSTEM_DB_PATH": "/elsewhere"}, [folder])
    assert found == Installation(
        folder / "libMIOpen.so", Release(3, 5, 1, "1a2b3c4d5"), Path("/elsewhere")
    )


def test_pytorchs_own_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    rocm = install(tmp_path / "rocm", b"3.4.0.1111111\0").parent
    wheels = install(site / "_rocm_sdk_libraries_gfx94X", b"3.5.0.2222222\0", "libMIOpen.so")
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    environment = {"ROCM_PATH": str(rocm)}
    found = find_installation(environment)
    assert found
    assert found.library.parent == wheels
    install(site / "torch", b"3.3.0.3333333\0", "libMIOpen.so")
    (site / "torch" / "__init__.py").write_text("raise AssertionError('it was imported')\n")
    found = find_installation(environment)
    assert found
    assert str(found.release) == "3.3.0.3333333"
    assert found.system_folder == site / "torch" / "share" / "miopen" / "db"
    monkeypatch.setattr(sys, "path", [])
    found = find_installation(environment)
    assert found
    assert str(found.release) == "3.4.0.1111111"


def test_the_tweak_comes_from_the_library_or_a_file_or_is_asked_for(tmp_path: Path) -> None:
    installed = Installation(Path("lib"), parse_release("3.3.0.a85ca8a54"), Path("db"))
    assert str(choose_release(None, installed, tmp_path)) == "3.3.0.a85ca8a54"
    assert str(choose_release("3.3.0", installed, tmp_path)) == "3.3.0.a85ca8a54"
    assert str(choose_release("3.3.0.", installed, tmp_path)) == "3.3.0."
    assert str(choose_release("3.3.0.fff", installed, tmp_path)) == "3.3.0.fff"
    assert choose_release("3.3.0+mlir", installed, tmp_path).mlir
    with pytest.raises(InputError, match=r"tweak of MIOpen 3\.4\.0.*isn't known"):
        choose_release("3.4.0", installed, tmp_path)
    (tmp_path / "gfx942130.HIP.3_4_0_1a2b3c4.ufdb.txt").touch()
    assert str(choose_release("3.4.0", installed, tmp_path)) == "3.4.0.1a2b3c4"
    (tmp_path / "gfx942130.HIP.3_4_0_.ufdb.txt").touch()
    with pytest.raises(InputError, match=r"databases of 3\.4\.0\., 3\.4\.0\.1a2b3c4"):
        choose_release("3.4.0", None, tmp_path)
    with pytest.raises(InputError, match=r"no MIOpen on this machine.*known are"):
        choose_release(None, None, tmp_path)
