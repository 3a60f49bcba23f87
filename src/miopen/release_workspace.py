"""Workspace by release: where the formulas of the shipped databases hold, and where none does.

The databases were recorded by releases up to 3.3. Public source and pull requests say what later
ones ask for:

* From 3.3 on every copy of a tensor is rounded up on every arch. The databases of MI100 and MI200
  are older, and there the last copy of assembly implicit GEMM counts its bytes.
* From 3.5 on three of CK's grouped solvers ask CK itself, which sweeps its kernels.
* From 3.6 on GEMM adds up bf16 filter gradients in fp32, and computes an output of one pixel
  otherwise.
"""

from __future__ import annotations

from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.workspace import workspace_bytes

_ASKS_CK = (3, 5)
_ASKED_CK = frozenset(
    {
        "ConvHipImplicitGemmGroupBwdXdlops",
        "ConvHipImplicitGemmGroupWrwXdlops",
        "ConvHipImplicitGemm3DGroupWrwXdlops",
    }
)
_NEW_GEMM = (3, 6)
_CHANGED_GEMM = frozenset({"GemmBwdRest", "GemmWrwUniversal"})
#: The arch whose database a release recorded that rounds every copy up.
_ROUNDED_UP = "gfx942"


def workspace_in(solver: str, problem: ConvProblem, release: tuple[int, int]) -> int | None:
    """Bytes of workspace that a release of MIOpen asks for.

    Parameters
    ----------
    solver : str
        By its id in the shipped databases.
    problem : ConvProblem
        One to which the solver applies.
    release : tuple of int
        Major and minor number, 3.3 or newer.

    Returns
    -------
    int or None
        None where no formula is known to hold.

    Examples
    --------
    >>> problem = ConvProblem("W", 8, 64, (56, 56), 64, (3, 3), dtype="BF16")
    >>> workspace_in("GemmWrwUniversal", problem, (3, 5))
    3359232
    >>> workspace_in("GemmWrwUniversal", problem, (3, 6)) is None
    True
    """
    if release >= _ASKS_CK and solver in _ASKED_CK:
        return None
    if release >= _NEW_GEMM and solver in _CHANGED_GEMM:
        adds_in_fp32 = (
            problem.direction == "W" and problem.out_dtype == "BF16" and problem.batch > 1
        )
        if adds_in_fp32 or set(problem.out_size) == {1}:
            return None
    return workspace_bytes(solver, problem, _ROUNDED_UP)
