"""Names of databases and devices."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.miopen.names import (
    DatabaseName,
    database_base_name,
    find_databases,
    parse_arch,
    parse_database_name,
    usual_compute_units,
)

ARCHS = ("gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1201")


@pytest.mark.parametrize(
    ("arch", "units", "name"),
    [
        ("gfx908", 120, "gfx90878"),
        ("gfx90a", 104, "gfx90a68"),
        ("gfx90a:sramecc+:xnack-", 110, "gfx90a6e"),
        ("gfx942:sramecc+:xnack+", 304, "gfx942_xnack130"),
        ("gfx908:sramecc-:xnack+", 120, "gfx908_nosramecc_xnack78"),
        ("gfx942", 304, "gfx942130"),
        ("gfx906", 60, "gfx906_60"),
        ("gfx906", 64, "gfx906_64"),
        ("gfx906", 65, "gfx90641"),
    ],
)
def test_base_names(arch: str, units: int, name: str) -> None:
    assert database_base_name(arch, units) == name


@given(
    st.sampled_from(ARCHS),
    st.integers(1, 512),
    st.sampled_from(
        [
            (".HIP.fdb.txt", "find-db", "HIP", False),
            (".OpenCL.fdb.txt.bz2", "find-db", "OpenCL", False),
            (".HIP.2_20_0_.ufdb.txt", "find-db", "HIP", True),
            (".HIP.2_11_0_993628deb.udb.txt", "perf-db", "HIP", True),
            (".HIP.3_3_0_a85ca8a54-dirty.udb.txt", "perf-db", "HIP", True),
            (".db.txt", "perf-db", "", False),
            (".db.bz2", "perf-db", "", False),
            ("_1.1.0.udb", "perf-db", "", True),
        ]
    ),
)
def test_names_say_what_they_were_made_of(
    arch: str, units: int, ending: tuple[str, str, str, bool]
) -> None:
    suffix, kind, backend, user = ending
    name = parse_database_name(database_base_name(arch, units) + suffix)
    assert name == DatabaseName(arch, units, kind, backend, user)


@pytest.mark.parametrize(
    "name", ["gfx90a.tn.model", "gfx90a68.kdb", "gfx90a40.db", "batchnorm_gfx90a68.db", "README"]
)
def test_other_files_are_none(name: str) -> None:
    assert parse_database_name(name) is None


def test_shipped_databases_are_found(miopen_db: Path) -> None:
    found = find_databases(miopen_db)
    assert len(found) == 8
    assert {file.name.arch for file in found} == {"gfx906", "gfx908", "gfx90a", "gfx942"}
    assert [file.name.compute_units for file in find_databases(miopen_db, "gfx90a:xnack-")] == [
        *(104, 104, 110)
    ]


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    assert find_databases(tmp_path) == ()
    with pytest.raises(InputError, match="no such folder"):
        find_databases(tmp_path / "missing")


def test_arch_names() -> None:
    assert parse_arch(" gfx90a:sramecc+:xnack- ") == "gfx90a"
    assert parse_arch("sm_90") == "sm_90"
    assert usual_compute_units("gfx90a:xnack-") == 104
    assert usual_compute_units("gfx1100") is None
    for text in ("", "gfx", "gfx90g", "MI300X", "gfx90a xnack"):
        with pytest.raises(InputError, match="arch"):
            parse_arch(text)
    with pytest.raises(InputError, match="compute units"):
        database_base_name("gfx90a", 0)
