"""Tensors as kernels store them, with poison and guard bytes around."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.kernels.problem import Tensor
from foretune.kernels.runtime.device import Buffer, Device
from foretune.kernels.solver import WORKSPACE_ALIGNMENT

GUARD = 4 * WORKSPACE_ALIGNMENT
#: All bits set is NaN in every floating type, so a stray read shows too.
POISON = 0xFF

Bytes = npt.NDArray[np.uint8]


def to_bits(values: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """Round to a storage type; 16-bit types come as unsigned integers."""
    exact = np.ascontiguousarray(values, np.float32)
    if dtype == "FP32":
        return exact
    if dtype == "FP16":
        return exact.astype(np.float16).view(np.uint16)
    bits = exact.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bits(bits: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.float64]:
    """Give the values that stored bits stand for."""
    if dtype == "FP32":
        return bits.astype(np.float64)
    if dtype == "FP16":
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def in_memory(tensor: Tensor, logical: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Order a logical array as the tensor lies in memory."""
    return np.ascontiguousarray(logical.transpose(tensor.order))


def in_logical_order(tensor: Tensor, memory: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Undo `in_memory`."""
    return memory.reshape(tensor.memory_shape).transpose(np.argsort(tensor.order))


class GuardedMemory:
    """Named buffers, each with poisoned bytes before and behind it."""

    def __init__(self, device: Device, sizes: Mapping[str, int]) -> None:
        self._device = device
        self._sizes = dict(sizes)
        self._whole = {name: device.alloc(size + 2 * GUARD) for name, size in sizes.items()}
        for buffer in self._whole.values():
            device.fill(buffer, POISON)
        device.synchronize()
        self.buffers: dict[str, Buffer | None] = {
            name: buffer.part(GUARD, sizes[name]) for name, buffer in self._whole.items()
        }

    def write(self, name: str, data: npt.NDArray[Any]) -> None:
        """Set the content of a buffer."""
        buffer = self.buffers[name]
        assert buffer is not None
        self._device.write(buffer, data)

    def read(self, name: str) -> Bytes:
        """Give the content, after checking that the guards still stand."""
        whole = np.empty(self._sizes[name] + 2 * GUARD, np.uint8)
        self._device.read(self._whole[name], whole)
        assert (whole[:GUARD] == POISON).all(), f"written before {name}"
        assert (whole[GUARD + self._sizes[name] :] == POISON).all(), f"written behind {name}"
        return whole[GUARD : GUARD + self._sizes[name]]

    def free(self) -> None:
        """Give all memory back."""
        for buffer in self._whole.values():
            buffer.free()
