"""Convolution in a transformed domain: transform, multiply by GEMM, transform back.

Winograd's and Fourier's methods differ in their transforms alone. The workspace holds the
transformed input, the transformed filter and their product, and what the GEMM itself needs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from foretune.kernels.conv.as_forward import AsForward, as_forward, why_not_as_forward
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.conv.solver import ConvSolver
from foretune.kernels.gemm.problem import GemmProblem
from foretune.kernels.gemm.solvers.tiled import SOLVER as GEMM
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import Launch, Plan, Workspace, align, embed
from foretune.kernels.space import Config, Space, Tunable

#: Name of the transforms' own tunable: threads, or tiles, of their blocks.
TRANSFORM = "TRANSFORM"


class TransformDomainConv(ConvSolver):
    """A convolution solver whose products are one batched GEMM."""

    directions = ("F", "B")
    layouts = ("NCHW", "NHWC")

    @abstractmethod
    def transform_tunable(self, problem: ConvProblem, device: DeviceProperties) -> Tunable:
        """Make the transforms' own tunable, named `TRANSFORM`."""

    @abstractmethod
    def product(self, view: AsForward) -> GemmProblem:
        """See the products of all places as a batch of matrix products."""

    @abstractmethod
    def transforms(
        self,
        view: AsForward,
        transform: int,
        parts: tuple[Workspace, Workspace, Workspace],
        scales: tuple[float, float],
    ) -> tuple[Launch, Launch, Launch]:
        """Make the launches that transform the input, the filter, and the product back.

        Parameters
        ----------
        view : AsForward
        transform : int
            Value of the tunable TRANSFORM.
        parts : tuple of Workspace
            Where the transformed input and filter go, and where their product is.
        scales : tuple of float
            alpha and beta.
        """

    @abstractmethod
    def operands(self, view: AsForward) -> tuple[int, int]:
        """Say which operand of the product the input is, and which the filter: 0 for a, 1 for b."""

    def why_not_conv(self, problem: ConvProblem, device: DeviceProperties) -> str | None:
        """Say why not: direction, the method's own limits, and sizes beyond 32-bit offsets."""
        reason = why_not_as_forward(problem) or self.why_not_transform(problem)
        if reason is not None:
            return reason
        product = self.product(as_forward(problem))
        elements = product.batch * max(
            product.m * product.k, product.k * product.n, product.m * product.n
        )
        if elements >= 2**31:
            return f"offsets have 32 bits, the transformed tensors {elements} elements"
        return GEMM.why_not(product, device)

    @abstractmethod
    def why_not_transform(self, problem: ConvProblem) -> str | None:
        """Say what the method has against a problem that can be seen as a forward one."""

    def space(self, problem: ConvProblem, device: DeviceProperties) -> Space:
        """Tunables of the GEMM, and the transforms' block size."""
        product = GEMM.space(self.product(as_forward(problem)), device)
        return self._with_transform(product, problem, device)

    def bounds(self, problem: ConvProblem, device: DeviceProperties) -> Space:
        """Give the same configs without choosing a default."""
        product = GEMM.bounds(self.product(as_forward(problem)), device)
        return self._with_transform(product, problem, device)

    def _with_transform(
        self, product: Space, problem: ConvProblem, device: DeviceProperties
    ) -> Space:
        own = self.transform_tunable(problem, device)
        return Space((*product.tunables, own), product.constraints)

    def plan(
        self, problem: ConvProblem, config: Config, alpha: float = 1.0, beta: float = 0.0
    ) -> Plan:
        """Transform both operands, multiply, transform back."""
        view = as_forward(problem)
        product = self.product(view)
        of_gemm = Config({name: config[name] for name in config if name != TRANSFORM})
        gemm = GEMM.plan(product, of_gemm)
        sizes = [
            4 * product.batch * elements
            for elements in (
                product.m * product.k,
                product.k * product.n,
                product.m * product.n,
            )
        ]
        a, b, c = (Workspace(sum(map(align, sizes[:place]))) for place in range(3))
        end = sum(map(align, sizes))
        operands = (a, b)
        input_part, filter_part = (operands[place] for place in self.operands(view))
        to_input, to_filter, back = self.transforms(
            view, config[TRANSFORM], (input_part, filter_part, c), (alpha, beta)
        )
        multiply = embed(gemm, {"a": a, "b": b, "c": c}, end)
        return Plan((to_input, to_filter, *multiply, back), end + gemm.workspace)

    def adds_atomically(self, problem: ConvProblem, config: Mapping[str, int]) -> bool:
        """Say whether the product adds atomically."""
        return GEMM.adds_atomically(self.product(as_forward(problem)), config)
