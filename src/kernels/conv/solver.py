"""What the convolution solvers have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from foretune.kernels.conv.arguments import DTYPES, ORDERS, tensors
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import Solver


class ConvSolver(Solver[ConvProblem]):
    """A convolution solver; states as class attributes what it leaves to this class to check."""

    directions: ClassVar[tuple[str, ...]] = ("F", "B", "W")
    dtypes: ClassVar[tuple[str, ...]] = tuple(DTYPES)
    layouts: ClassVar[tuple[str, ...]] = ("NCHW", "NHWC", "NCDHW", "NDHWC")
    #: Whether the three tensors may lie differently.
    mixes_layouts: ClassVar[bool] = False
    #: Whether it takes more than one group.
    takes_groups: ClassVar[bool] = True
    #: Elements of one tensor from which on 32-bit offsets would overflow.
    element_limit: ClassVar[int] = 2**31 - 1

    def why_not(self, problem: ConvProblem, device: DeviceProperties) -> str | None:
        """Say why it can't compute this problem on this device; None if it can."""
        if problem.direction not in self.directions:
            return f"computes {', '.join(self.directions)}, not {problem.direction}"
        types = {problem.dtype, problem.weight_dtype, problem.out_dtype}
        if len(types) > 1 or problem.dtype not in self.dtypes:
            return f"computes {', '.join(self.dtypes)}, all tensors alike, not {_slashed(types)}"
        if problem.cast or problem.weight_cast or problem.out_cast:
            return "casts no tensor while computing"
        layouts = {problem.layout, problem.weight_layout, problem.out_layout}
        if layouts - set(ORDERS if self.mixes_layouts else self.layouts):
            return f"takes the layouts {', '.join(self.layouts)}, not {_slashed(layouts)}"
        if len(layouts) > 1 and not self.mixes_layouts:
            return f"takes one layout for all tensors, not {_slashed(layouts)}"
        if problem.groups > 1 and not self.takes_groups:
            return f"takes one group, not {problem.groups}"
        if problem.bias and problem.direction != "F":
            return "a bias is added by the forward direction alone"
        largest = max(tensor.size for tensor in tensors(problem))
        if largest > self.element_limit:
            return f"offsets have 32 bits, a tensor has {largest} elements"
        return self.why_not_conv(problem, device)

    @abstractmethod
    def why_not_conv(self, problem: ConvProblem, device: DeviceProperties) -> str | None:
        """Say what this solver itself has against a problem; None if nothing."""


def _slashed(words: set[str]) -> str:
    return "/".join(sorted(words))
