"""Callers' arrays by the logical axes N, C, spatial: how they lie, views of them, packed copies."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from foretune.errors import InputError
from foretune.kernels.runtime.arrays import empty_like, place_of, view_of
from foretune.kernels.runtime.fitting import ALIGNMENT

#: What libraries call the types that kernels compute with. 16-bit unsigned integers hold bfloat16s.
_DTYPES = MappingProxyType(
    {"float32": "FP32", "float16": "FP16", "bfloat16": "BF16", "uint16": "BF16"}
)


#: PyTorch's devices -> names of devices; PyTorch takes long to tell.
_PLACES: dict[Any, str] = {}


class Form(NamedTuple):
    """How an array lies in memory, apart from where.

    Attributes
    ----------
    shape : tuple of int
    strides : tuple of int
        Elements between neighbours along each axis.
    dtype : str
        By a problem's names, such as "FP16"; the array's own name for any other.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    def lies_in(self, order: Sequence[int]) -> bool:
        """Whether elements are packed, axes from the slowest to the fastest in this order.

        Examples
        --------
        >>> Form((2, 8, 3, 4), (96, 1, 32, 8), "FP32").lies_in((0, 2, 3, 1))
        True
        """
        step = 1
        for axis in reversed(order):
            # Where there is one element along an axis, its stride doesn't matter.
            if self.shape[axis] != 1:
                if self.strides[axis] != step:
                    return False
                step *= self.shape[axis]
        return True


def form_of(array: Any, name: str) -> Form:
    """See how an array lies.

    Parameters
    ----------
    array : numpy.ndarray or any object with ``__dlpack__``
    name : str
        What messages call it.

    Raises
    ------
    InputError
        If it is no array, or its owner doesn't give it.

    Examples
    --------
    >>> form_of(np.zeros((2, 3), np.float32), "x")
    Form(shape=(2, 3), strides=(3, 1), dtype='FP32')
    """
    if isinstance(array, np.ndarray):
        dtype, itemsize = array.dtype, array.itemsize
        strides = tuple([step // itemsize for step in array.strides])
        if not dtype.isnative or any(step % itemsize for step in array.strides):
            view_of(array, name)  # says what is wrong
        return Form(array.shape, strides, _dtype_name(dtype))
    if _is_torch(array):
        if array.requires_grad:
            raise InputError(
                "wants a gradient: use the functions of foretune.torch, or pass its detach()", name
            )
        return tensor_form(array)
    view = view_of(array, name)
    return Form(view.shape, view.strides, view.dtype)


def tensor_form(tensor: Any) -> Form:
    """See how a tensor of PyTorch's lies."""
    return Form(tuple(tensor.shape), tensor.stride(), _dtype_name(tensor.dtype))


def is_packed(array: Any, form: Form, order: tuple[int, ...]) -> bool:
    """Whether kernels can use an array as it lies.

    Examples
    --------
    >>> x = np.zeros((2, 8, 3, 4), np.float32)
    >>> is_packed(x, form_of(x, "x"), (0, 1, 2, 3))
    True
    """
    # NumPy's are on the host, where what isn't aligned is copied by whoever computes.
    return form.lies_in(order) and not (_is_torch(array) and array.data_ptr() % ALIGNMENT)


def packed(array: Any, form: Form, order: tuple[int, ...], name: str) -> Any:
    """Give an array whose elements are packed in this order; a copy if they aren't.

    Parameters
    ----------
    array : array
    form : Form
        Its own.
    order : tuple of int
        Axes from the slowest to the fastest in memory.
    name : str
        What messages call it.

    Examples
    --------
    >>> x = np.zeros((2, 8, 3, 4), np.float32)
    >>> form_of(packed(x, form_of(x, "x"), (0, 2, 3, 1), "x"), "x").strides
    (96, 1, 32, 8)
    """
    if is_packed(array, form, order):
        return array
    made = empty_like(array, form.shape, order, name)
    assign(made, array, name)
    return made


def address_of(array: Any) -> int | None:
    """Where the elements start; None if that isn't asked for cheaply, or isn't aligned.

    Examples
    --------
    >>> address_of(np.zeros(8)) is None, address_of([1.0]) is None
    (False, True)
    """
    if isinstance(array, np.ndarray):
        address: int = array.__array_interface__["data"][0]
    elif _is_torch(array):
        address = array.data_ptr()
    else:
        return None
    return None if address % ALIGNMENT else address


def device_of(array: Any) -> str:
    """Name the device that an array lies on.

    Examples
    --------
    >>> device_of(np.zeros(8))
    'cpu'
    """
    if isinstance(array, np.ndarray):
        return "cpu"
    if not _is_torch(array):
        return place_of(array, "")
    known = _PLACES.get(array.device)
    if known is None:
        known = _PLACES[array.device] = place_of(array, "")
    return known


def stream_of(array: Any) -> int | None:
    """Give PyTorch's current stream for a tensor on a GPU; None for anything else."""
    if not _is_torch(array) or array.device.type == "cpu":
        return None
    return int(sys.modules["torch"].cuda.current_stream(array.device).cuda_stream)


def assign(target: Any, value: Any, name: str) -> None:
    """Write an array's elements into another.

    Examples
    --------
    >>> target = np.zeros((2, 3))
    >>> assign(target, np.ones(3), "out")
    >>> float(target.sum())
    6.0
    """
    try:
        target[...] = value
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{type(target).__module__} doesn't write to it: {error}", name) from None


def permuted(array: Any, axes: tuple[int, ...]) -> Any:
    """View an array with its axes in another order.

    Examples
    --------
    >>> permuted(np.zeros((2, 3, 4)), (0, 2, 1)).shape
    (2, 4, 3)
    """
    if axes == tuple(range(len(axes))):
        return array
    if isinstance(array, np.ndarray):
        return array.transpose(axes)
    if _is_torch(array):
        return array.permute(*axes)
    return array.__array_namespace__().permute_dims(array, axes)


def _is_torch(array: Any) -> bool:
    return hasattr(array, "data_ptr")


@lru_cache(maxsize=64)
def _dtype_name(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    return _DTYPES.get(name, name)
