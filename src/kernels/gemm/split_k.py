"""Adding up shares of sums in a fixed order: the last launch of a solver that splits its sums."""

from __future__ import annotations

from dataclasses import dataclass

from foretune.kernels.solver import KernelSource, Launch, Workspace, fast_divisor, pack

_FILE = "gemm/split_k.cl"
#: Threads stride over elements, in so many blocks at most.
_THREADS = 256
_MAX_BLOCKS = 1 << 13


@dataclass(frozen=True)
class Shares:
    """Sums in the workspace that make an output: ``count`` fp32 copies of it, laid out as it is.

    Parameters
    ----------
    output : str or Workspace
        The tensor that is written: alpha * sum (+ bias) + beta * old.
    storage : int
        What the macro DTYPE says of its elements.
    size : int
        Elements of a copy.
    count : int
    alpha, beta : float
    sums_first, output_first : int
        Elements of the workspace before the copies, and of the tensor before what is written.
    channels, inner : int
        Channels of the bias, and elements from one channel to the next.

    Examples
    --------
    >>> shares = Shares("w", 0, 288, 16, 1.0, 0.0)
    >>> shares.sum().grid, shares.clear().kernel.name
    ((2, 1, 1), 'clear_sums')
    """

    output: str | Workspace
    storage: int
    size: int
    count: int
    alpha: float
    beta: float
    sums_first: int = 0
    output_first: int = 0
    channels: int = 1
    inner: int = 1

    def clear(self) -> Launch:
        """Set all copies to zero, for those who add to them."""
        return Launch(self._kernel("clear_sums"), self._grid, (Workspace(), self._packed))

    def sum(self) -> Launch:
        """Add the copies up and store the sum."""
        arguments = (Workspace(), self.output, "bias", self._packed)
        return Launch(self._kernel("sum_shares"), self._grid, arguments)

    @property
    def _grid(self) -> tuple[int, int, int]:
        return min(_MAX_BLOCKS, -(-self.size // _THREADS)), 1, 1

    @property
    def _packed(self) -> bytes:
        return pack(
            *(self.size, self.count, self.channels, self.sums_first, self.output_first),
            *fast_divisor(self.inner),
            *fast_divisor(self.channels),
            *(float(self.alpha), float(self.beta)),
        )

    def _kernel(self, name: str) -> KernelSource:
        return KernelSource(_FILE, name, (("DTYPE", self.storage), ("THREADS", _THREADS)))
