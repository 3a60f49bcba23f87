"""Whether callers' arrays fit the tensors of a problem."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from foretune.errors import InputError
from foretune.kernels.problem import DTYPE_BYTES, Tensor
from foretune.kernels.runtime.arrays import ArrayView, contiguous_strides

#: Kernels load up to 16 bytes at a time.
ALIGNMENT = 16


def is_by_memory(tensor: Tensor, view: ArrayView, name: str) -> bool:
    """Whether an array has the shape of memory, (N, H, W, C); else it has the tensor's own.

    Raises
    ------
    InputError
        If it has neither, or another type.

    Examples
    --------
    >>> from foretune.kernels.runtime.arrays import view_of
    >>> x = Tensor("x", (2, 8, 3, 4), (0, 2, 3, 1), "FP32", False)
    >>> is_by_memory(x, view_of(np.zeros((2, 3, 4, 8), np.float32), "x"), "x")
    True
    >>> is_by_memory(x, view_of(np.zeros((2, 8, 3, 5), np.float32), "x"), "x")
    Traceback (most recent call last):
        ...
    foretune.errors.InputError: x: axis 3 has 5 elements, the problem says 4: (2, 8, 3, 4)
    """
    if view.dtype != tensor.dtype:
        raise InputError(f"elements are {view.dtype}, the problem says {tensor.dtype}", name)
    if view.shape == tensor.shape:
        as_memory = tensor.memory_shape == tensor.shape and not lies_as(tensor, view, False)
        return as_memory and lies_as(tensor, view, True)
    if view.shape == tensor.memory_shape:
        return True
    if len(view.shape) != len(tensor.shape):
        raise InputError(
            f"has {len(view.shape)} axes, the problem says {len(tensor.shape)}: {tensor.shape}",
            name,
        )
    wrong = next(
        axis
        for axis, (size, expected) in enumerate(zip(view.shape, tensor.shape, strict=True))
        if size != expected
    )
    raise InputError(
        f"axis {wrong} has {view.shape[wrong]} elements, the problem says {tensor.shape[wrong]}: "
        f"{tensor.shape}",
        name,
    )


def lies_as(tensor: Tensor, view: ArrayView, by_memory: bool) -> bool:
    """Whether the elements lie where kernels expect them."""
    if by_memory:
        return _same(view, tensor.memory_shape, contiguous_strides(tensor.memory_shape))
    return _same(view, tensor.shape, tensor.strides)


def is_aligned(view: ArrayView) -> bool:
    """Whether kernels may load many bytes at a time from the start on."""
    return view.address % ALIGNMENT == 0


def host_array(view: ArrayView) -> npt.NDArray[np.generic]:
    """See an array of the host as NumPy's; types of 16 bits as unsigned integers."""
    if isinstance(view.owner, np.ndarray):
        array = view.owner
        return array.view(np.uint16) if array.itemsize == 2 else array
    itemsize = DTYPE_BYTES[view.dtype]
    first = np.ctypeslib.as_array(_pointer(view.address), (itemsize,))
    kind = {2: np.uint16, 4: np.uint32, 8: np.uint64, 1: np.uint8}[itemsize]
    return np.lib.stride_tricks.as_strided(
        first.view(kind), view.shape, [step * itemsize for step in view.strides]
    )


def order_in(tensor: Tensor, by_memory: bool) -> tuple[int, ...]:
    """Axes of an array from the slowest to the fastest in a kernel's memory."""
    return tuple(range(len(tensor.shape))) if by_memory else tensor.order


def check_overlap(output: ArrayView, others: Sequence[tuple[str, ArrayView]]) -> None:
    """Raise if the output lies over an input: kernels read and write in any order."""
    start, end = _span(output)
    for name, view in others:
        first, last = _span(view)
        if view.place == output.place and first < end and start < last:
            raise InputError(f"lies over {name}; give another", "out")


def lies_over_itself(view: ArrayView) -> bool:
    """Whether elements share memory, as those of a broadcast array do; true if that isn't clear.

    Examples
    --------
    >>> from foretune.kernels.runtime.arrays import view_of
    >>> array = np.zeros((2, 3))
    >>> lies_over_itself(view_of(array.T, "x"))
    False
    >>> lies_over_itself(view_of(np.broadcast_to(array[:1], (2, 3)), "x"))
    True
    """
    steps = sorted((abs(step), size) for size, step in zip(view.shape, view.strides, strict=True))
    extent = 1
    for step, size in steps:
        if size > 1 and step < extent:
            return True
        extent += (size - 1) * step
    return False


def _span(view: ArrayView) -> tuple[int, int]:
    steps = [(size - 1) * step for size, step in zip(view.shape, view.strides, strict=True)]
    low, high = sum(min(0, step) for step in steps), sum(max(0, step) for step in steps) + 1
    size = DTYPE_BYTES[view.dtype]
    return view.address + low * size, view.address + high * size


def _same(view: ArrayView, shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    # Where there is one element along an axis, its stride doesn't matter.
    return view.shape == shape and all(
        size == 1 or step == wanted
        for size, step, wanted in zip(shape, view.strides, strides, strict=True)
    )


def _pointer(address: int) -> ctypes._Pointer[ctypes.c_uint8]:
    return ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8))
