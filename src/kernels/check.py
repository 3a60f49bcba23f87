"""Whether a candidate computes what the naive solver computes, found out on the device."""

from __future__ import annotations

import struct
from dataclasses import fields, replace
from typing import Any

import numpy as np

from foretune.kernels.memory import ProblemMemory
from foretune.kernels.problem import Problem
from foretune.kernels.registry import naive_solver, tensors
from foretune.kernels.runtime.device import Buffer
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import KernelSource, Launch, Plan

#: Largest difference over the size of the sums, by the type of the output.
TOLERANCES = {"FP32": 1e-5, "FP16": 5e-3, "BF16": 2e-2}
_DTYPES = {"FP32": 0, "FP16": 1, "BF16": 2}
_BLOCKS, _THREADS = 256, 64
#: All bits set is NaN in every type: an element that isn't written shows.
POISON = 0xFF


class Checker:
    """Compares outputs with the naive solver's, computed once in FP32 from the same inputs.

    Parameters
    ----------
    executor : Executor
    problem : Problem
    memory : ProblemMemory
        Of the problem.

    Raises
    ------
    OutOfDeviceMemoryError
        If the reference doesn't fit beside the problem.
    """

    #: What messages call it.
    reference = "the naive solver"

    def __init__(self, executor: Executor, problem: Problem, memory: ProblemMemory) -> None:
        self._executor = executor
        self._memory = memory
        self._device = device = executor.device
        self._expected = device.alloc(memory.output.size * 4)
        try:
            self._worst = device.alloc(2 * 4 * _BLOCKS * _THREADS)
            self._compute_expected(problem)
        except BaseException:
            self.free()
            raise
        # Rounding grows with the magnitudes summed; of normal numbers |xw| is 0.64 on average.
        self._sum_size = 0.64 * problem.flops / (2 * max(1, memory.output.size))

    def _compute_expected(self, problem: Problem) -> None:
        exact = in_fp32(problem)
        memory = ProblemMemory(self._device, exact, like=self._memory.output.dtype)
        try:
            plan = _exact_plan(problem, self._device.properties)
            memory.reserve_workspace(plan.workspace)
            buffers = {**memory.buffers, memory.output.name: self._expected}
            self._executor.prepare(plan, buffers)()
            self._device.synchronize()
        finally:
            memory.free()

    def poison(self) -> None:
        """Fill the output with what no candidate writes."""
        output = self._memory.buffers[self._memory.output.name]
        assert output is not None
        self._device.fill(output, POISON)

    def error(self) -> float:
        """Largest difference of the output over the size of its sums."""
        tensor = self._memory.output
        arguments = ("output", "expected", "worst", struct.pack("<q", tensor.size))
        buffers: dict[str, Buffer | None] = {
            "output": self._memory.buffers[tensor.name],
            "expected": self._expected,
            "worst": self._worst,
        }
        launch = Launch(_difference_kernel(tensor.dtype), (_BLOCKS, 1, 1), arguments)
        self._executor.prepare(Plan((launch,)), buffers)()
        worst = np.empty((_BLOCKS * _THREADS, 2), np.float32)
        self._device.synchronize()
        self._device.read(self._worst, worst)
        largest, magnitude = worst.max(axis=0)
        return float(largest) / max(float(magnitude), self._sum_size, 1e-30)

    def why_wrong(self, error: float, tolerance: float = 0.0) -> str | None:
        """Say why an error is too large; None if it isn't.

        Parameters
        ----------
        error : float
            From `error`.
        tolerance : float, optional
            Of the solver, where it allows itself more than its type asks for.
        """
        allowed = max(TOLERANCES[self._memory.output.dtype], tolerance)
        if error <= allowed:
            return None
        return f"differs from {self.reference} by {error:.3g} of the sums, {allowed:.3g} is allowed"

    def free(self) -> None:
        """Give the memory back."""
        self._expected.free()
        if hasattr(self, "_worst"):
            self._worst.free()


def in_fp32(problem: Problem) -> Problem:
    """Give the same problem with all tensors in FP32.

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> in_fp32(ConvProblem("F", 1, 3, (8, 8), 4, (3, 3), dtype="FP16")).out_dtype
    'FP32'
    """
    described: Any = problem
    names = [field.name for field in fields(described) if field.name.endswith("dtype")]
    exact: Problem = replace(described, **dict.fromkeys(names, "FP32"))
    return exact


def checking_kernels(problem: Problem, device: DeviceProperties) -> list[KernelSource]:
    """List the kernels that checking candidates of a problem takes.

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> from foretune.kernels.runtime.properties import amd_properties
    >>> problem = ConvProblem("F", 1, 4, (6, 6), 4, (3, 3), dtype="FP16")
    >>> [kernel.name for kernel in checking_kernels(problem, amd_properties("gfx942"))]
    ['conv_naive', 'largest_difference']
    """
    output = next(tensor for tensor in tensors(problem) if tensor.is_output)
    reference = [launch.kernel for launch in _exact_plan(problem, device).launches]
    return [*reference, _difference_kernel(output.dtype)]


def _exact_plan(problem: Problem, device: DeviceProperties) -> Plan:
    exact, naive = in_fp32(problem), naive_solver(problem.operation)
    return naive.plan(exact, naive.default_config(exact, device))


def _difference_kernel(dtype: str) -> KernelSource:
    macros = (("THREADS", _THREADS), ("DTYPE", _DTYPES[dtype]))
    return KernelSource("check.cl", "largest_difference", macros)
