"""The rules that somebody who knows MIOpen's solvers would write down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Self

from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.baselines.records import Times
from foretune.miopen.baselines.rule_mask import RuleMask, kind

_WINOGRAD = (
    "ConvBinWinogradRxSf3x2",
    "ConvBinWinogradRxSf2x3g1",
    "ConvBinWinogradRxSf2x3",
    "ConvBinWinogradRxS",
    "ConvBinWinograd3x3U",
    "ConvAsm3x3U",
)
_WINOGRAD_WEIGHTS = ("ConvBinWinogradRxSf3x2", "ConvBinWinogradRxSf2x3", "ConvAsmBwdWrW3x3")
_GEMM_1X1 = {
    "F": ("GemmFwd1x1_0_1", "GemmFwd1x1_0_2"),
    "B": ("GemmBwd1x1_stride1", "GemmBwd1x1_stride2"),
    "W": ("GemmWrw1x1_stride1",),
}
_IMPLICIT_GEMM_2D = {
    "F": (
        "ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC",
        "ConvHipImplicitGemmGroupFwdXdlops",
        "ConvMlirIgemmFwdXdlops",
        "ConvHipImplicitGemmForwardV4R4Xdlops",
    ),
    "B": (
        "ConvAsmImplicitGemmGTCDynamicBwdXdlopsNHWC",
        "ConvHipImplicitGemmGroupBwdXdlops",
        "ConvMlirIgemmBwdXdlops",
        "ConvHipImplicitGemmBwdDataV4R1Xdlops",
    ),
    "W": (
        "ConvAsmImplicitGemmGTCDynamicWrwXdlopsNHWC",
        "ConvHipImplicitGemmGroupWrwXdlops",
        "ConvMlirIgemmWrWXdlops",
        "ConvHipImplicitGemmWrwV4R4Xdlops",
    ),
}
_IMPLICIT_GEMM_3D = {
    "F": ("ConvHipImplicitGemm3DGroupFwdXdlops",),
    "B": ("ConvHipImplicitGemm3DGroupBwdXdlops",),
    "W": ("ConvHipImplicitGemm3DGroupWrwXdlops",),
}
_GEMM = {"F": ("GemmFwdRest",), "B": ("GemmBwdRest",), "W": ("GemmWrwUniversal",)}
# Groups of one channel leave a GEMM nothing to do: kernels for groups first.
_GROUPED = {
    "F": ("ConvBinWinogradRxSf2x3", "ConvHipImplicitGemmGroupFwdXdlops", "ConvOclDirectFwd"),
    "B": ("ConvBinWinogradRxSf2x3", "ConvHipImplicitGemmGroupBwdXdlops", "ConvOclDirectFwd"),
    "W": ("ConvBinWinogradRxSf2x3", "ConvHipImplicitGemmGroupWrwXdlops", "ConvOclBwdWrW2<1>"),
}


class HandRules:
    """Picks by rules; the data say only which solvers an arch has, and where they can run.

    In order: with groups, the kernels made for groups; Winograd for fp32 3x3 filters of unit
    stride; GEMM for 1x1 filters in NCHW or NCDHW; implicit GEMM; GEMM after im2col; and if none
    of these can run, what is listed most often.

    Examples
    --------
    >>> problem = ConvProblem("F", 8, 64, (56, 56), 64, (1, 1))
    >>> times = {"GemmFwd1x1_0_1": 0.9, "ConvDirectNaiveConvFwd": 0.1}
    >>> HandRules().fit([problem], [times]).pick([problem])
    ['GemmFwd1x1_0_1']
    """

    def __init__(self) -> None:
        self._mask = RuleMask()

    def fit(self, problems: Sequence[ConvProblem], times: Sequence[Times]) -> Self:
        """Learn which solvers there are and where each is listed.

        Parameters
        ----------
        problems : sequence of ConvProblem
            Problems of the training records.
        times : sequence of mapping
            Milliseconds by solver for each of them.
        """
        self._mask = RuleMask().fit(problems, times)
        return self

    def pick(self, problems: Sequence[ConvProblem]) -> list[str | None]:
        """Name a solver for each problem; None where training had no problem of the kind."""
        return [self._pick(problem) for problem in problems]

    def _pick(self, problem: ConvProblem) -> str | None:
        allowed = self._mask.allowed(problem)
        preferred = next((solver for solver in _preferred(problem) if solver in allowed), None)
        if preferred is not None:
            return preferred
        listed = self._mask.solvers_.get(kind(problem), Counter[str]())
        return next((solver for solver, _ in listed.most_common() if solver in allowed), None)


def _preferred(problem: ConvProblem) -> Iterator[str]:
    """Solvers from the most to the least wanted, whether they can run or not."""
    direction = problem.direction
    if problem.groups > 1:
        yield from _GROUPED[direction]
    # Matrix cores make up for Winograd's fewer multiplications in the short types.
    if problem.dtype == "FP32" and set(problem.stride) == {1} and problem.filter_size == (3, 3):
        yield from _WINOGRAD_WEIGHTS if direction == "W" else _WINOGRAD
    if set(problem.filter_size) == {1} and problem.layout in ("NCHW", "NCDHW"):
        yield from _GEMM_1X1[direction]
    if problem.ndim == 2:
        yield from _IMPLICIT_GEMM_2D[direction]
    else:
        yield from _IMPLICIT_GEMM_3D[direction]
    yield from _GEMM[direction]
