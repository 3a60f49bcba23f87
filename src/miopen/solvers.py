"""MIOpen's convolution solvers: what the shipped databases say, and which release runs which.

The table lists the solver ids that occur in the find-dbs and perf-dbs that AMD ships (gfx906,
gfx908, gfx90a, gfx942). Which release can run a solver is read from MIOpen's public source and
pull requests:

* Releases 3.3 to 3.5 register every solver of the table. (The OpenCL solvers were removed in
  spring 2026, after the last 3.5; nothing that matters here changed between 3.3 and 3.5.)
* Release 3.6 removed most OpenCL solvers and the two CK solvers without groups, and ported three
  OpenCL solvers to HIP. Two of these got a new database id; the third, ``ConvOclBwdWrW53``, is
  the class ``ConvHipBwdWrW53`` now but keeps its old id. Newer releases are taken to be like 3.6.
* ``ConvMlirIgemm*`` need a MIOpen that was built with rocMLIR, in every release.
* Old solvers with static kernels are off by default on gfx942 and newer.

What releases before 3.3 run has not been looked at; asking is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from foretune.errors import InputError
from foretune.miopen.patterns import compiled

#: The version that stands for every solver the databases know.
ANY_VERSION = "any"

_DIRECTION_WORDS = MappingProxyType({"F": "Fwd", "B": "BwdData", "W": "BwdWeights"})

# Algorithm, directions, whether a shipped perf-db lists configs, solver ids.
_TABLE = (
    (
        "Direct",
        "FB",
        True,
        "ConvAsm1x1U ConvAsm1x1UV2 ConvAsm3x3U ConvOclDirectFwd ConvOclDirectFwd1x1",
    ),
    (
        "Direct",
        "F",
        False,
        "ConvAsm5x10u2v2f1 ConvDirectNaiveConvFwd ConvOclDirectFwd11x11 ConvOclDirectFwdGen",
    ),
    ("Direct", "B", False, "ConvAsm5x10u2v2b1 ConvDirectNaiveConvBwd"),
    (
        "Direct",
        "W",
        True,
        "ConvAsmBwdWrW1x1 ConvAsmBwdWrW3x3 ConvOclBwdWrW2<1> ConvOclBwdWrW2<2> "
        "ConvOclBwdWrW2<4> ConvOclBwdWrW2<8> ConvOclBwdWrW2<16>",
    ),
    (
        "Direct",
        "W",
        False,
        "ConvDirectNaiveConvWrw ConvOclBwdWrW1x1 ConvOclBwdWrW2NonTunable ConvOclBwdWrW53",
    ),
    ("FFT", "FB", False, "fft"),
    ("GEMM", "F", False, "GemmFwd1x1_0_1 GemmFwd1x1_0_2 GemmFwdRest"),
    ("GEMM", "B", False, "GemmBwd1x1_stride1 GemmBwd1x1_stride2 GemmBwdRest"),
    ("GEMM", "W", False, "GemmWrw1x1_stride1 GemmWrwUniversal"),
    (
        "ImplicitGEMM",
        "F",
        True,
        "ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC ConvCkIgemmFwdV6r1DlopsNchw "
        "ConvHipImplicitGemm3DGroupFwdXdlops ConvHipImplicitGemmForwardV4R4Xdlops "
        "ConvHipImplicitGemmForwardV4R4Xdlops_Padded_Gemm ConvHipImplicitGemmForwardV4R5Xdlops "
        "ConvHipImplicitGemmFwdXdlops ConvHipImplicitGemmGroupFwdXdlops "
        "ConvHipImplicitGemmV4R1Fwd ConvHipImplicitGemmV4R4Fwd "
        "ConvMlirIgemmFwd ConvMlirIgemmFwdXdlops",
    ),
    (
        "ImplicitGEMM",
        "F",
        False,
        "ConvAsmImplicitGemmGTCDynamicFwdXdlops ConvAsmImplicitGemmV4R1DynamicFwd "
        "ConvAsmImplicitGemmV4R1DynamicFwd_1x1",
    ),
    (
        "ImplicitGEMM",
        "B",
        True,
        "ConvAsmImplicitGemmGTCDynamicBwdXdlopsNHWC ConvHipImplicitGemm3DGroupBwdXdlops "
        "ConvHipImplicitGemmBwdDataV1R1 ConvHipImplicitGemmBwdXdlops "
        "ConvHipImplicitGemmGroupBwdXdlops ConvMlirIgemmBwd ConvMlirIgemmBwdXdlops",
    ),
    (
        "ImplicitGEMM",
        "B",
        False,
        "ConvAsmImplicitGemmGTCDynamicBwdXdlops ConvAsmImplicitGemmV4R1DynamicBwd "
        "ConvHipImplicitGemmBwdDataV4R1Xdlops",
    ),
    (
        "ImplicitGEMM",
        "W",
        True,
        "ConvAsmImplicitGemmGTCDynamicWrwXdlopsNHWC ConvHipImplicitGemm3DGroupWrwXdlops "
        "ConvHipImplicitGemmGroupWrwXdlops ConvHipImplicitGemmV4R1WrW ConvHipImplicitGemmV4R4WrW "
        "ConvHipImplicitGemmWrwV4R4Xdlops ConvHipImplicitGemmWrwV4R4Xdlops_Padded_Gemm "
        "ConvMlirIgemmWrW ConvMlirIgemmWrWXdlops",
    ),
    (
        "ImplicitGEMM",
        "W",
        False,
        "ConvAsmImplicitGemmGTCDynamicWrwXdlops ConvAsmImplicitGemmV4R1DynamicWrw",
    ),
    ("Winograd", "FBW", True, "ConvBinWinogradRxSf2x3 ConvBinWinogradRxSf3x2"),
    ("Winograd", "FBW", False, "ConvBinWinogradRxS ConvBinWinogradRxSf2x3g1"),
    ("Winograd", "FB", False, "ConvBinWinograd3x3U"),
    (
        "Winograd",
        "W",
        False,
        "ConvWinograd3x3MultipassWrW<1-1-7-2> ConvWinograd3x3MultipassWrW<1-1-7-3> "
        "ConvWinograd3x3MultipassWrW<3-2> ConvWinograd3x3MultipassWrW<3-3> "
        "ConvWinograd3x3MultipassWrW<3-4> ConvWinograd3x3MultipassWrW<3-5> "
        "ConvWinograd3x3MultipassWrW<3-6> ConvWinograd3x3MultipassWrW<5-3> "
        "ConvWinograd3x3MultipassWrW<5-4> ConvWinograd3x3MultipassWrW<7-2-1-1> "
        "ConvWinograd3x3MultipassWrW<7-2> ConvWinograd3x3MultipassWrW<7-3-1-1> "
        "ConvWinograd3x3MultipassWrW<7-3>",
    ),
)

_OLDEST_KNOWN = (3, 3)
_WITHOUT_OPENCL = (3, 6)

_RENAMED_3_6 = MappingProxyType(
    {
        "ConvOclDirectFwd": "ConvHipDirectFwd",
        "ConvOclDirectFwd11x11": "ConvHipDirectFwd11x11",
    }
)
_DATABASE_NAMES = MappingProxyType({new: old for old, new in _RENAMED_3_6.items()})
_REMOVED_3_6 = frozenset(
    {
        "ConvHipImplicitGemmBwdXdlops",
        "ConvHipImplicitGemmFwdXdlops",
        "ConvOclBwdWrW1x1",
        "ConvOclBwdWrW2<1>",
        "ConvOclBwdWrW2<2>",
        "ConvOclBwdWrW2<4>",
        "ConvOclBwdWrW2<8>",
        "ConvOclBwdWrW2<16>",
        "ConvOclBwdWrW2NonTunable",
        "ConvOclDirectFwd1x1",
        "ConvOclDirectFwdGen",
    }
)
_DEPRECATED = frozenset(
    {
        "ConvAsm1x1U",
        "ConvAsm1x1UV2",
        "ConvAsm3x3U",
        "ConvAsm5x10u2v2b1",
        "ConvAsm5x10u2v2f1",
        "ConvAsmBwdWrW1x1",
        "ConvAsmBwdWrW3x3",
        "ConvCkIgemmFwdV6r1DlopsNchw",
        "ConvHipImplicitGemmBwdDataV1R1",
        "ConvHipImplicitGemmBwdDataV4R1Xdlops",
        "ConvHipImplicitGemmForwardV4R4Xdlops",
        "ConvHipImplicitGemmForwardV4R4Xdlops_Padded_Gemm",
        "ConvHipImplicitGemmForwardV4R5Xdlops",
        "ConvHipImplicitGemmV4R1Fwd",
        "ConvHipImplicitGemmV4R1WrW",
        "ConvHipImplicitGemmV4R4Fwd",
        "ConvHipImplicitGemmV4R4WrW",
        "ConvHipImplicitGemmWrwV4R4Xdlops",
        "ConvHipImplicitGemmWrwV4R4Xdlops_Padded_Gemm",
    }
)
# The HIP port of this one asks for no old GPU; those of the other two are taken to be as the
# OpenCL solvers were.
_NO_LONGER_DEPRECATED_3_6 = frozenset({"ConvOclDirectFwd11x11"})
_ARCHS_WITH_DEPRECATED = ("gfx900", "gfx906", "gfx908", "gfx90a", "gfx103")

_VERSION = r"(\d{1,9})\.(\d{1,9})(?:\.\w+)*(\+mlir)?"


@dataclass(frozen=True, slots=True)
class SolverInfo:
    """What the shipped databases say of one solver.

    Parameters
    ----------
    id : str
        As the databases write it.
    algorithm_family : {'Direct', 'FFT', 'GEMM', 'ImplicitGEMM', 'Winograd'}
        Last word of the algorithm's name.
    directions : str
        Those of F, B and W in which it was seen.
    tunable : bool
        Whether a shipped perf-db lists configs for it.

    Examples
    --------
    >>> SOLVERS["ConvAsm1x1U"].algorithm("B")
    'miopenConvolutionBwdDataAlgoDirect'
    """

    id: str
    algorithm_family: str
    directions: str
    tunable: bool

    @property
    def naive(self) -> bool:
        """Whether it is one of the slow solvers that can do everything."""
        return self.id.startswith("ConvDirectNaive")

    def algorithm(self, direction: str) -> str:
        """Algorithm that a find-db item of this solver names.

        Raises
        ------
        InputError
            If the solver doesn't do this direction.
        """
        if direction not in self.directions:
            raise InputError(
                f"{self.id} is a solver for {', '.join(self.directions)}, not {direction!r}",
                "direction",
            )
        return f"miopenConvolution{_DIRECTION_WORDS[direction]}Algo{self.algorithm_family}"


#: Solver id -> what is known of it, for every id in the shipped databases.
SOLVERS: Mapping[str, SolverInfo] = MappingProxyType(
    {
        solver: SolverInfo(solver, family, directions, tunable)
        for family, directions, tunable, solvers in _TABLE
        for solver in solvers.split()
    }
)


def can_run(solver: str, arch: str, version: str = ANY_VERSION) -> bool:
    """Whether a release of MIOpen runs a solver on an arch with its default settings.

    It doesn't say whether the solver applies to a problem, nor whether the arch has the
    instructions that it needs.

    Parameters
    ----------
    solver : str
        Solver id, by its old or its new name.
    arch : str
        Such as "gfx90a", or as devices report it: "gfx90a:sramecc+:xnack-".
    version : str, default 'any'
        Release, such as "3.4" or "3.5.1.tweak", with "+mlir" at the end if it was built with
        rocMLIR; or "any", with which everything runs.

    Raises
    ------
    InputError
        If it is no version, or one before 3.3.

    Examples
    --------
    >>> can_run("ConvOclDirectFwd1x1", "gfx90a", "3.4"), can_run("ConvAsm1x1U", "gfx942", "3.4")
    (True, False)
    >>> can_run("ConvOclDirectFwd1x1", "gfx90a", "3.6"), can_run("ConvAsm1x1U", "gfx90a", "3.6")
    (False, True)
    """
    release, mlir = _parse_version(version)
    if release is None:
        return True
    new = release >= _WITHOUT_OPENCL
    if solver in _DATABASE_NAMES:
        if not new:
            return False
        solver = _DATABASE_NAMES[solver]
    if solver.startswith("ConvMlir") and not mlir:
        return False
    if new and solver in _REMOVED_3_6:
        return False
    deprecated = solver in _DEPRECATED or solver.startswith("ConvOcl")
    if new and solver in _NO_LONGER_DEPRECATED_3_6:
        deprecated = False
    return not deprecated or arch.startswith(_ARCHS_WITH_DEPRECATED)


@lru_cache(maxsize=256)
def runnable(arch: str, version: str = ANY_VERSION) -> frozenset[str]:
    """Solvers of the table that a release runs on an arch, by the ids of the shipped databases.

    Parameters
    ----------
    arch, version : str
        As in `can_run`.

    Examples
    --------
    >>> len(runnable("gfx90a", "any")), "ConvMlirIgemmFwdXdlops" in runnable("gfx90a", "3.6")
    (85, False)
    """
    return frozenset(solver for solver in SOLVERS if can_run(solver, arch, version))


def name_in(solver: str, version: str = ANY_VERSION) -> str:
    """Id by which a release's databases know a solver of the table.

    Parameters
    ----------
    solver : str
        Solver id.
    version : str
        As in `can_run`; "any" leaves the id as it is.

    Examples
    --------
    >>> name_in("ConvOclDirectFwd", "3.4"), name_in("ConvOclDirectFwd", "3.6")
    ('ConvOclDirectFwd', 'ConvHipDirectFwd')
    """
    release, _ = _parse_version(version)
    if release is not None and release >= _WITHOUT_OPENCL:
        return _RENAMED_3_6.get(solver, solver)
    return solver


def table_name(solver: str) -> str:
    """Id by which the table, the formulas and the models know a solver: its oldest.

    Examples
    --------
    >>> table_name("ConvHipDirectFwd"), table_name("fft")
    ('ConvOclDirectFwd', 'fft')
    """
    return _DATABASE_NAMES.get(solver, solver)


@lru_cache(maxsize=64)
def _parse_version(text: str) -> tuple[tuple[int, int] | None, bool]:
    if text == ANY_VERSION:
        return None, True
    match = compiled(_VERSION).fullmatch(text)
    if match is None:
        raise InputError(
            f"expected a MIOpen release such as 3.6 or 3.4.0+mlir, or any; got {text!r}",
            "MIOpen version",
        )
    release = int(match[1]), int(match[2])
    if release < _OLDEST_KNOWN:
        raise InputError(
            f"what MIOpen {text} runs isn't known, only 3.3 and newer are; use any",
            "MIOpen version",
        )
    return release, match[3] is not None
