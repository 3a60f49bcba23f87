"""A matrix multiplication: what is asked for, apart from who computes it and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from foretune.errors import InputError

TRANSPOSES = ("NN", "NT", "TN", "TT")
DTYPES = ("FP32", "FP16", "BF16")
_MAX_SIZE = 2**31 - 1


@dataclass(frozen=True)
class GemmProblem:
    """C = alpha * A * B + beta * C for each matrix of a batch, rows first in memory.

    Parameters
    ----------
    m, n, k : int
        A is m x k, B is k x n.
    batch : int, default 1
        Matrices, one behind the other.
    transposes : {'NN', 'NT', 'TN', 'TT'}
        T where A or B lies transposed in memory: columns first.
    dtype : {'FP32', 'FP16', 'BF16'}
        Storage of all three; sums are FP32.

    Raises
    ------
    InputError
        If a field is out of range.

    Examples
    --------
    >>> GemmProblem(64, 32, 16, transposes="TN").flops
    65536
    """

    operation: ClassVar[str] = "gemm"

    m: int
    n: int
    k: int
    batch: int = 1
    transposes: str = "NN"
    dtype: str = "FP32"

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batch"):
            size = getattr(self, name)
            if type(size) is not int or not 1 <= size <= _MAX_SIZE:
                raise InputError(f"expected a whole number from 1 on, got {size!r}", name)
        if self.transposes not in TRANSPOSES:
            known = ", ".join(TRANSPOSES)
            raise InputError(f"expected one of {known}, got {self.transposes!r}", "transposes")
        if self.dtype not in DTYPES:
            raise InputError(f"expected one of {', '.join(DTYPES)}, got {self.dtype!r}", "dtype")

    @property
    def flops(self) -> int:
        """Floating-point operations, a multiply-add as two."""
        return 2 * self.batch * self.m * self.n * self.k
