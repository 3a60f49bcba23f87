"""Words that the problems of every operation share."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import ClassVar, Protocol

#: Data types by MIOpen's names, with the bytes of one element.
DTYPE_BYTES = MappingProxyType(
    {
        "FP32": 4,
        "FP16": 2,
        "BF16": 2,
        "INT8": 1,
        "INT32": 4,
        "FP64": 8,
        "FP8": 1,
        "BF8": 1,
        "INT64": 8,
    }
)


class Problem(Protocol):
    """What a problem of any operation offers to those who measure and store.

    Problems are frozen and hashable. ``operation`` names the package that computes them:
    ``foretune.kernels.<operation>``.
    """

    operation: ClassVar[str]

    @property
    def flops(self) -> int:
        """Floating-point operations of the direct algorithm."""
        ...


@dataclass(frozen=True)
class Tensor:
    """A tensor of a problem, as it lies in memory.

    Parameters
    ----------
    name : str
        The word that plans and arguments use for it.
    shape : tuple of int
        Logical shape, in the operation's own order whatever the layout: N, C, H, W for x.
    order : tuple of int
        Axes from the slowest to the fastest in memory.
    dtype : str
        Name in `DTYPE_BYTES`.
    is_output : bool

    Examples
    --------
    >>> x = Tensor("x", (2, 3, 4, 5), (0, 2, 3, 1), "FP16", False)
    >>> x.strides, x.memory_shape, x.nbytes
    ((60, 1, 15, 3), (2, 4, 5, 3), 240)
    """

    name: str
    shape: tuple[int, ...]
    order: tuple[int, ...]
    dtype: str
    is_output: bool

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.size * DTYPE_BYTES[self.dtype]

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """Shape in the order of memory, the slowest axis first."""
        return tuple(self.shape[axis] for axis in self.order)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours along each logical axis."""
        strides = [0] * len(self.shape)
        step = 1
        for axis in reversed(self.order):
            strides[axis] = step
            step *= self.shape[axis]
        return tuple(strides)
