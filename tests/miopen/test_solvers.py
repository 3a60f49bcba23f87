"""The table of solvers against the shipped databases, and what releases run."""

import bz2
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.miopen.solvers import (
    ANY_VERSION,
    SOLVERS,
    can_run,
    name_in,
    runnable,
    table_name,
)

DATABASES = Path(__file__).parents[3] / "shared" / "miopen-db"
OPENCL = {solver for solver in SOLVERS if solver.startswith("ConvOcl")}


@pytest.mark.skipif(not DATABASES.is_dir(), reason="AMD's databases are not beside the checkout")
def test_table_is_what_the_find_dbs_hold() -> None:
    # gfx90a's files add nothing to these; that they hold no other solver is seen where the
    # workspaces are checked, and which solvers have configs where the configs are.
    items: set[tuple[bytes, bytes]] = set()
    for database in ("gfx942130", "gfx90878"):
        text = bz2.decompress((DATABASES / f"{database}.HIP.fdb.txt.bz2").read_bytes())
        items |= set(re.findall(rb"[=;]([^:]+):[^,]+,[0-9]+,(miopen\w+)", text))
    text = bz2.decompress((DATABASES / "gfx906_60.HIP.fdb.txt.bz2").read_bytes())
    legacy = set(re.findall(rb"[=;](miopen\w+):([^,]+),", text))
    items |= {(solver, algorithm) for algorithm, solver in legacy}

    assert {(solver.decode(), algorithm.decode()) for solver, algorithm in items} == {
        (solver, info.algorithm(direction))
        for solver, info in SOLVERS.items()
        for direction in info.directions
    }


def test_algorithm_of_a_direction_that_the_solver_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="GemmFwdRest is a solver for F, not 'W'"):
        SOLVERS["GemmFwdRest"].algorithm("W")


def test_naive_solvers() -> None:
    assert {solver for solver, info in SOLVERS.items() if info.naive} == {
        "ConvDirectNaiveConvFwd",
        "ConvDirectNaiveConvBwd",
        "ConvDirectNaiveConvWrw",
    }


@pytest.mark.parametrize("arch", ["gfx906", "gfx908", "gfx90a:sramecc+:xnack-", "gfx942", "x"])
def test_any_runs_everything(arch: str) -> None:
    assert runnable(arch) == runnable(arch, ANY_VERSION) == set(SOLVERS)


@pytest.mark.parametrize("version", ["3.3", "3.3.0", "3.4.0", "3.5.1.1a2b3c"])
def test_releases_before_3_6_lack_only_mlir(version: str) -> None:
    mlir = {solver for solver in SOLVERS if solver.startswith("ConvMlir")}
    assert set(SOLVERS) - runnable("gfx90a:sramecc+:xnack-", version) == mlir
    assert runnable("gfx90a", version + "+mlir") == set(SOLVERS)


@pytest.mark.parametrize("version", ["3.6", "3.6.0", "3.7.1", "4.0", "3.10.2.tweak"])
def test_newer_releases_keep_only_the_three_ported_opencl_solvers(version: str) -> None:
    assert runnable("gfx908", version) & OPENCL == {
        "ConvOclDirectFwd",
        "ConvOclDirectFwd11x11",
        "ConvOclBwdWrW53",
    }
    assert not can_run("ConvHipImplicitGemmFwdXdlops", "gfx942", version)
    assert can_run("ConvHipImplicitGemmGroupFwdXdlops", "gfx942", version)


def test_old_static_solvers_are_off_on_newer_archs() -> None:
    off = runnable("gfx90a", "3.4") - runnable("gfx942", "3.4")
    assert "ConvAsm1x1U" in off
    assert off >= OPENCL
    assert runnable("gfx942", "3.4") == runnable("gfx950", "3.4")
    assert not any(solver.startswith(("Gemm", "ConvBin", "ConvDirect")) for solver in off)


def test_ported_solvers_run_under_their_new_names() -> None:
    assert name_in("ConvOclDirectFwd11x11", "3.6") == "ConvHipDirectFwd11x11"
    assert name_in("ConvOclBwdWrW53", "3.6") == "ConvOclBwdWrW53"
    assert can_run("ConvHipDirectFwd", "gfx90a", "3.6")
    assert not can_run("ConvHipDirectFwd", "gfx90a", "3.5")
    for version in ("any", "3.4", "3.6"):
        for solver in SOLVERS:
            assert table_name(name_in(solver, version)) == solver


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("", "expected a MIOpen release"),
        ("3", "expected a MIOpen release"),
        ("3.x", "expected a MIOpen release"),
        ("latest", "expected a MIOpen release"),
        ("3.4+cuda", "expected a MIOpen release"),
        ("3.2.9", "what MIOpen 3.2.9 runs isn't known"),
        ("2.20.0", "what MIOpen 2.20.0 runs isn't known"),
    ],
)
def test_other_versions_are_refused(version: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        runnable("gfx90a", version)


@given(st.text(max_size=12))
def test_any_text_is_a_version_or_refused(text: str) -> None:
    try:
        name = name_in("ConvOclDirectFwd", text)
    except InputError:
        return
    assert table_name(name) == "ConvOclDirectFwd"
