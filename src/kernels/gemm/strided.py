"""Matrices that lie in memory as they are, for the kernel gemm/solvers/tiled.cl."""

from __future__ import annotations

from dataclasses import dataclass

from foretune.kernels.gemm.tiling import Matrices
from foretune.kernels.solver import Workspace, fast_divisor, pack


@dataclass(frozen=True)
class Strides:
    """Elements between neighbours of one matrix along an axis.

    Parameters
    ----------
    inner : int
        Within the inner part of the axis.
    outer : int, default 0
        Between inner parts, if the axis has more than one.
    """

    inner: int
    outer: int = 0


@dataclass(frozen=True)
class Operand:
    """One of the three matrices.

    Parameters
    ----------
    argument : str or Workspace
    rows, columns : Strides
        From row to row, and from column to column.
    part, first : int, default 0
        Elements between parts, and before the first.
    """

    argument: str | Workspace
    rows: Strides
    columns: Strides
    part: int = 0
    first: int = 0


def strided_matrices(
    dtype: tuple[str, int],
    sizes: tuple[int, int, int],
    a: Operand,
    b: Operand,
    c: Operand,
    *,
    parts: int = 1,
    k_inner: int = 0,
    n_inner: int = 0,
    size: int,
    bias: tuple[int, int] = (1, 1),
) -> Matrices:
    """Describe a multiplication, and find out what can be read and written by vectors.

    Parameters
    ----------
    dtype : tuple
        The macro DTYPE.
    sizes : tuple of int
        m, n, k.
    a, b, c : Operand
        m x k, k x n, m x n.
    parts : int
        Multiplications side by side.
    k_inner, n_inner : int
        Length of the inner part of the axis; default: the axis.
    size : int
        Elements of the tensor that c is.
    bias : tuple of int
        Channels, and elements of c between two of them.
    """
    m, n, k = sizes
    k_inner, n_inner = k_inner or k, n_inner or n
    a_along_k, a_vector = _fetch(a, m, k_inner)
    b_along_n, b_vector = _fetch(b, k_inner, n_inner)
    c_along_n, c_vector = _fetch(c, m, n_inner)
    geometry = pack(
        *(m, n, k, k_inner, n_inner),
        *(a.rows.inner, a.columns.inner, a.columns.outer, a.part, a.first),
        *(b.rows.inner, b.rows.outer, b.columns.inner, b.columns.outer, b.part, b.first),
        *(c.rows.inner, c.columns.inner, c.columns.outer, c.part),
        *fast_divisor(k_inner),
        *fast_divisor(n_inner),
    )
    return Matrices(
        file="gemm/solvers/tiled.cl",
        macros=(dtype,),
        geometry=geometry,
        a=a.argument,
        b=b.argument,
        c=c.argument,
        m=m,
        n=n,
        k=k,
        parts=parts,
        size=size,
        a_along_k=a_along_k,
        b_along_k=not b_along_n,
        a_vector=a_vector,
        b_vector=b_vector,
        m_is_fastest=not c_along_n,
        c_vector=c_vector,
        c_first=c.first,
        channels=bias[0],
        inner=bias[1],
    )


def _fetch(operand: Operand, rows: int, columns: int) -> tuple[bool, int]:
    """Find out whether columns are neighbours in memory, and the elements read at once there."""
    for along_columns in (True, False):
        line, length = (operand.columns, columns) if along_columns else (operand.rows, rows)
        across = operand.rows if along_columns else operand.columns
        if line.inner == 1:
            steps = (length, line.outer, across.inner, across.outer, operand.part, operand.first)
            return along_columns, 1 if any(step % 4 for step in steps) else 4
    return True, 1
