"""Tensors of a problem on a device, with content that is the same each time."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from foretune.kernels.problem import Problem, Tensor
from foretune.kernels.registry import tensors
from foretune.kernels.runtime.device import Buffer, Device

#: Different values of a tensor; larger ones repeat them, since drawing takes longer than copying.
_DRAWN = (1 << 20) + 7


class ProblemMemory:
    """Buffers for the tensors of a problem and for a workspace.

    Inputs hold normally distributed numbers, outputs nothing.

    Parameters
    ----------
    device : Device
    problem : Problem
    like : str, optional
        Type whose values the inputs hold; default: each tensor's own. With "FP16" an FP32 tensor
        holds what an FP16 one would, exactly.

    Raises
    ------
    OutOfDeviceMemoryError
        If the tensors don't fit.
    """

    def __init__(self, device: Device, problem: Problem, like: str = "") -> None:
        self._device = device
        self.buffers: dict[str, Buffer | None] = {}
        described = tensors(problem)
        self.output = next(tensor for tensor in described if tensor.is_output)
        try:
            for tensor in described:
                buffer = device.alloc(tensor.nbytes)
                self.buffers[tensor.name] = buffer
                if not tensor.is_output:
                    device.write(buffer, stored_values(tensor, like or tensor.dtype))
        except BaseException:
            self.free()
            raise

    def reserve_workspace(self, nbytes: int) -> bool:
        """Have at least so many bytes of workspace; true if the buffer is a new one."""
        held = self.buffers.get("workspace")
        if not nbytes or (held is not None and held.nbytes >= nbytes):
            return False
        self._device.synchronize()
        made = self._device.alloc(nbytes)
        if held is not None:
            held.free()
        self.buffers["workspace"] = made
        return True

    def free(self) -> None:
        """Give all memory back; harmless if done twice."""
        for buffer in self.buffers.values():
            if buffer is not None:
                buffer.free()
        self.buffers.clear()


def stored_values(tensor: Tensor, like: str) -> npt.NDArray[Any]:
    """Bits of a tensor filled with drawn numbers, in the order of memory.

    Examples
    --------
    >>> stored_values(Tensor("x", (2, 2), (0, 1), "FP16", False), "FP16").dtype
    dtype('uint16')
    """
    return np.resize(stored_pattern(tensor, like), tensor.size)


def stored_pattern(tensor: Tensor, like: str) -> npt.NDArray[Any]:
    """Bits that fill a tensor, again and again where it is larger.

    Examples
    --------
    >>> stored_pattern(Tensor("x", (2, 2), (0, 1), "FP32", False), "FP32").shape
    (4,)
    """
    generator = np.random.default_rng(crc32(tensor.name.encode()))
    drawn = generator.standard_normal(min(tensor.size, _DRAWN), np.float32)
    return _to_storage(_rounded(drawn, like), tensor.dtype)


def _rounded(values: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[np.float32]:
    if dtype == "FP16":
        return values.astype(np.float16).astype(np.float32)
    if dtype == "BF16":
        # Cut off, not rounded: any number will do, if all see the same.
        return (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return values


def _to_storage(values: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[Any]:
    if dtype == "FP16":
        return values.astype(np.float16).view(np.uint16)
    if dtype == "BF16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values
