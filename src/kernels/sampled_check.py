"""Whether a candidate computes what the definition says, found out on some of its output.

That takes milliseconds where the naive solver, which `foretune.kernels.check` compares with, takes
seconds, and needs no kernel of its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.kernels.check import POISON, Checker
from foretune.kernels.memory import ProblemMemory, stored_pattern
from foretune.kernels.problem import Problem, Tensor
from foretune.kernels.registry import tensors
from foretune.kernels.runtime.executor import Executor

#: Elements that are computed, fewer where they are long sums.
_MOST_SAMPLES, _LEAST_SAMPLES = 128, 8
_MOST_TERMS = 4_000_000
#: Larger outputs are looked at in parts; copying all would take longer than the candidates.
_WHOLE_BYTES = 32 << 20
_WINDOW_BYTES, _WINDOWS = 256 << 10, 64


class SampledChecker(Checker):
    """Compares drawn elements of the output with float64, and looks for unwritten ones.

    Parameters
    ----------
    executor : Executor
    problem : Problem
    memory : ProblemMemory
        Of the problem.
    """

    reference = "float64"

    def __init__(self, executor: Executor, problem: Problem, memory: ProblemMemory) -> None:
        self._memory = memory
        self._device = executor.device
        samples = import_module(f"foretune.kernels.{problem.operation}.samples")
        terms = max(1, samples.terms(problem))
        count = int(np.clip(_MOST_TERMS // terms, _LEAST_SAMPLES, _MOST_SAMPLES))
        output = memory.output
        self._windows = _windows(output)
        generator = np.random.default_rng(0)
        # The corners are where kernels with tiles go wrong first.
        drawn = [np.array([0, output.size - 1])]
        for start, size in self._windows:
            share = -(-count // len(self._windows))
            drawn.append(generator.integers(start, start + size, share))
        self._places = np.unique(np.concatenate(drawn))
        inputs = _Inputs(tensors(problem))
        logical = _logical(output, self._places)
        self._values = np.array(
            [samples.element(problem, place, inputs.read) for place in logical], np.float64
        )
        self._sum_size = 0.64 * terms

    def error(self) -> float:
        """Largest difference of the drawn elements over the size of their sums."""
        tensor = self._memory.output
        buffer = self._memory.buffers[tensor.name]
        assert buffer is not None
        kind = np.dtype(STORAGE[tensor.dtype])
        self._device.synchronize()
        got = np.empty(len(self._places), kind)
        for start, size in self._windows:
            stored = np.empty(size, kind)
            part = buffer.part(start * kind.itemsize, size * kind.itemsize)
            self._device.read(part, stored)
            if (stored == _all_bits(kind)).any():
                return float("inf")
            inside = (self._places >= start) & (self._places < start + size)
            got[inside] = stored[self._places[inside] - start]
        numbers = decoded(got, tensor.dtype)
        if not np.isfinite(numbers).all():
            return float("inf")
        largest = float(np.abs(numbers - self._values).max())
        return largest / max(float(np.abs(self._values).max()), self._sum_size)

    def free(self) -> None:
        """Give nothing back: no memory of the device was taken."""


#: How memory is seen on the host, by data type.
STORAGE = {"FP32": np.uint32, "FP16": np.uint16, "BF16": np.uint16}


def has_samples(problem: Problem) -> bool:
    """Whether elements of an operation's output can be computed one by one."""
    try:
        import_module(f"foretune.kernels.{problem.operation}.samples")
    except ModuleNotFoundError:
        return False
    return True


def decoded(stored: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.float64]:
    """Numbers of what memory holds.

    Examples
    --------
    >>> decoded(np.array([0x3F80], np.uint16), "BF16")
    array([1.])
    """
    if dtype == "FP16":
        return stored.view(np.float16).astype(np.float64)
    if dtype == "BF16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.view(np.float32).astype(np.float64)


def _windows(tensor: Tensor) -> list[tuple[int, int]]:
    """Places and sizes, in elements, of the parts that are looked at: all, unless it is large."""
    size, bytes_each = tensor.size, tensor.nbytes // tensor.size
    if tensor.nbytes <= _WHOLE_BYTES:
        return [(0, size)]
    part = _WINDOW_BYTES // bytes_each
    # Parts of a buffer start at multiples of a window, which suits every device.
    starts = np.linspace(0, size // part - 1, _WINDOWS).astype(np.int64) * part
    windows = [(int(start), part) for start in starts]
    rest = size % part
    return [*windows, (size - rest, rest)] if rest else windows


class _Inputs:
    """Elements of a problem's inputs, which repeat a pattern."""

    def __init__(self, described: tuple[Tensor, ...]) -> None:
        self._tensors = {tensor.name: tensor for tensor in described}
        self._patterns = {
            tensor.name: decoded(stored_pattern(tensor, tensor.dtype), tensor.dtype)
            for tensor in described
            if not tensor.is_output
        }

    def read(self, name: str, index: tuple[Any, ...]) -> npt.NDArray[np.float64]:
        """Give elements by their logical indices."""
        steps = zip(index, self._tensors[name].strides, strict=True)
        place: Any = sum(np.asarray(at, np.int64) * step for at, step in steps)
        pattern = self._patterns[name]
        taken: npt.NDArray[np.float64] = pattern[place % len(pattern)]
        return taken


def _logical(tensor: Tensor, places: npt.NDArray[Any]) -> list[tuple[int, ...]]:
    """Logical indices of places in memory."""
    by_memory = np.unravel_index(places, tensor.memory_shape)
    axes = sorted(range(len(tensor.order)), key=lambda axis: tensor.order[axis])
    return [tuple(int(by_memory[axis][row]) for axis in axes) for row in range(len(places))]


def _all_bits(dtype: Any) -> Any:
    return np.array(POISON * 0x01010101, np.uint32).astype(dtype)
