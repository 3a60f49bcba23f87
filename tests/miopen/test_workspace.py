"""Workspace formulas against every item of the shipped databases."""

import bz2
import re
from pathlib import Path

import pytest

from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.keys import parse_find_key
from foretune.miopen.solvers import SOLVERS
from foretune.miopen.workspace import FORMULAS, workspace_bytes

DATABASES = Path(__file__).parents[3] / "shared" / "miopen-db"


# Solver and workspace of an item; the legacy format has the algorithm first.
ITEM = re.compile(r"([^:;]+):[^,;]+,([0-9]+),[^;]+")
LEGACY_ITEM = re.compile(r"[^:;]+:([^,;]+),[^,;]+,([0-9]+),[^;]+")


@pytest.mark.skipif(not DATABASES.is_dir(), reason="AMD's databases are not beside the checkout")
@pytest.mark.parametrize(
    ("database", "arch", "items"),
    [
        ("gfx942130", "gfx942", 559_936),
        ("gfx90a68", "gfx90a", 569_299),
        ("gfx90a6e", "gfx90a", 568_595),
        ("gfx90878", "gfx908", 534_670),
        ("gfx906_60", "gfx906", 216_482),
    ],
)
def test_formulas_agree_with_every_shipped_item(database: str, arch: str, items: int) -> None:
    item = LEGACY_ITEM if arch == "gfx906" else ITEM
    agree = 0
    differ: dict[str, str] = {}
    # The package's reader checks more than is needed here and would take most of the time.
    text = bz2.decompress((DATABASES / f"{database}.HIP.fdb.txt.bz2").read_bytes()).decode()
    for line in text.splitlines():
        key, _, values = line.partition("=")
        problem = parse_find_key(key)
        for solver, workspace in item.findall(values):
            size = workspace_bytes(solver, problem, arch)
            if size == int(workspace):
                agree += 1
            else:
                differ.setdefault(solver, f"{key}: {workspace}, not {size}")
    assert differ == {}
    assert agree == items


def test_every_solver_of_the_databases_has_a_formula() -> None:
    assert set(FORMULAS) == set(SOLVERS)


def test_unknown_solver_has_no_formula() -> None:
    problem = ConvProblem("F", 1, 8, (8, 8), 8, (3, 3))
    assert workspace_bytes("ConvHipConv", problem, "gfx942") is None


def _w(batch: int, c: int, k: int, size: int, **kwargs: object) -> ConvProblem:
    return ConvProblem("W", batch, c, (size, size), k, (3, 3), **kwargs)  # type: ignore[arg-type]


def test_ck_weights_need_a_float_input_only_for_half_types_with_odd_channels() -> None:
    solver = "ConvHipImplicitGemmGroupWrwXdlops"
    odd = _w(3, 5, 8, 9, dtype="FP16", layout="NHWC")
    even = _w(3, 6, 8, 9, dtype="FP16", layout="NHWC")
    assert workspace_bytes(solver, odd, "gfx942") == 3 * 5 * 81 * 4
    assert workspace_bytes(solver, even, "gfx942") == 0
    assert workspace_bytes(solver, _w(3, 5, 8, 9, layout="NHWC"), "gfx942") == 0


def test_mlir_weights_need_a_float_filter_only_where_the_gemm_needs_no_padding() -> None:
    solver = "ConvMlirIgemmWrWXdlops"
    fits = _w(4, 16, 16, 6, dtype="FP16")
    padded = _w(4, 16, 12, 6, dtype="FP16")
    assert workspace_bytes(solver, fits, "gfx90a") == 4 * 16 * 16 * 9
    assert workspace_bytes(solver, padded, "gfx90a") == 0


def test_copy_of_a_half_result_is_aligned_on_newer_archs_only() -> None:
    solver = "ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC"
    problem = ConvProblem("F", 1, 8, (5, 5), 8, (1, 1), dtype="FP16", layout="NHWC")
    assert workspace_bytes(solver, problem, "gfx90a") == 8 * 25 * 4
    assert workspace_bytes(solver, problem, "gfx942") == 1024
