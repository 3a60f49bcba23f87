"""Callers' arrays as memory: NumPy's, and those of any library that speaks DLPack.

The capsule is read here because the bindings don't do it for all devices: ROCm's is a device type
of its own (https://dmlc.github.io/dlpack/latest/c_api.html).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from foretune.errors import InputError

#: DLPack's device types -> names of devices. Memory of the host that GPUs see is host memory.
_PLACES = MappingProxyType({1: "cpu", 2: "cuda", 3: "cpu", 10: "hip", 11: "cpu", 13: "cuda"})
#: Code and bits of DLPack's types -> names of problems'. Integers of 16 bits hold bfloat16s, as
#: they do in libraries without that type.
_DTYPES = MappingProxyType(
    {
        **{(2, 16): "FP16", (2, 32): "FP32", (2, 64): "FP64", (4, 16): "BF16", (1, 16): "BF16"},
        **{(0, 8): "INT8", (0, 32): "INT32", (0, 64): "INT64"},
    }
)
_NUMPY_DTYPES = MappingProxyType(
    {
        **{"float16": "FP16", "float32": "FP32", "float64": "FP64", "bfloat16": "BF16"},
        **{"uint16": "BF16", "int8": "INT8", "int32": "INT32", "int64": "INT64"},
    }
)
_READ_ONLY = 1
#: What libraries raise for an array that they can't hand out.
_REFUSALS = (BufferError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class ArrayView:
    """Where the elements of an array lie.

    Parameters
    ----------
    place : str
        "cpu", or a GPU's name such as "cuda:0".
    address : int
    shape : tuple of int
    strides : tuple of int
        Elements between neighbours along each axis.
    dtype : str
        By a problem's names, such as "FP16"; the array's own name for any other.
    is_read_only : bool
    owner : object
        Keeps the memory alive.
    """

    place: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    is_read_only: bool
    owner: object


def view_of(array: Any, name: str, stream: int | None = None) -> ArrayView:
    """See where an array lies, without a copy.

    Parameters
    ----------
    array : numpy.ndarray or any object with ``__dlpack__``
    name : str
        What messages call it.
    stream : int, optional
        Stream that will work with it, as DLPack numbers them: its owner makes this wait for what it
        started itself.

    Raises
    ------
    InputError
        If it is no array, or its owner doesn't give it.

    Examples
    --------
    >>> view = view_of(np.zeros((2, 3), np.float32), "x")
    >>> view.place, view.shape, view.strides, view.dtype
    ('cpu', (2, 3), (3, 1), 'FP32')
    """
    if isinstance(array, np.ndarray):
        itemsize = array.itemsize
        if not array.dtype.isnative:
            raise InputError(
                "the bytes of its elements are in the order of another machine; pass "
                "array.astype(array.dtype.newbyteorder('='))",
                name,
            )
        if any(step % itemsize for step in array.strides):
            raise InputError("elements don't lie at multiples of their size", name)
        return ArrayView(
            "cpu",
            array.ctypes.data,
            array.shape,
            tuple(step // itemsize for step in array.strides),
            _dtype_name(array.dtype),
            not array.flags.writeable,
            array,
        )
    place = place_of(array, name)
    try:
        capsule = _capsule(array, stream if place != "cpu" else None)
    except _REFUSALS as error:
        raise InputError(
            f"{type(array).__module__} doesn't give the array: {error}", name
        ) from None
    return _read_capsule(capsule, place, array)


@lru_cache(maxsize=64)
def _dtype_name(dtype: np.dtype[Any]) -> str:
    return _NUMPY_DTYPES.get(dtype.name, dtype.name)


def place_of(array: Any, name: str) -> str:
    """Name the device that an array lies on."""
    if isinstance(array, np.ndarray):
        return "cpu"
    if not (hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__")):
        raise InputError(f"expected a NumPy array or one with __dlpack__, got {type(array)}", name)
    try:
        kind, index = array.__dlpack_device__()
    except _REFUSALS as error:
        raise InputError(
            f"{type(array).__module__} doesn't say where the array lies: {error}", name
        ) from None
    place = _PLACES.get(int(kind))
    if place is None:
        raise InputError(f"lies on a device of DLPack's type {int(kind)}, which isn't known", name)
    return place if place == "cpu" else f"{place}:{int(index)}"


def _capsule(array: Any, stream: int | None) -> Any:
    arguments = {} if stream is None else {"stream": stream}
    try:
        return array.__dlpack__(max_version=(1, 0), **arguments)
    except TypeError:  # an owner from before versions
        return array.__dlpack__(**arguments)


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _VersionedTensor(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)


def _read_capsule(capsule: Any, place: str, array: Any) -> ArrayView:
    # The capsule is kept and never marked as used: when it goes, it frees what it holds.
    is_read_only = False
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _VersionedTensor.from_address(_get_pointer(capsule, b"dltensor_versioned"))
        tensor, is_read_only = versioned.tensor, bool(versioned.flags & _READ_ONLY)
    else:
        tensor = _DLTensor.from_address(_get_pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = (
        tuple(tensor.strides[axis] for axis in range(tensor.ndim))
        if tensor.strides
        else contiguous_strides(shape)
    )
    dtype = _DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    return ArrayView(
        place,
        (tensor.data or 0) + tensor.byte_offset,
        shape,
        strides,
        dtype or f"DLPack's type {tensor.code} of {tensor.bits} bits",
        is_read_only,
        (capsule, array),
    )


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements between neighbours if the last axis is the fastest.

    Examples
    --------
    >>> contiguous_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def empty_like(array: Any, shape: tuple[int, ...], order: tuple[int, ...], name: str) -> Any:
    """Make an array of the kind of another, without content.

    Parameters
    ----------
    array : array
        Gives library, type and device.
    shape : tuple of int
    order : tuple of int
        Axes from the slowest to the fastest in memory.
    name : str
        What messages call it.
    """
    places = tuple(sorted(range(len(order)), key=order.__getitem__))
    is_plain = places == order == tuple(range(len(order)))
    memory_shape = shape if is_plain else tuple([shape[axis] for axis in order])
    if isinstance(array, np.ndarray):
        made = np.empty(memory_shape, array.dtype)
        return made if is_plain else made.transpose(places)
    if hasattr(array, "new_empty"):  # PyTorch's
        made = array.new_empty(memory_shape)
        return made if is_plain else made.permute(*places)
    if hasattr(array, "__array_namespace__"):
        library = array.__array_namespace__()
        made = library.empty(memory_shape, dtype=array.dtype, device=array.device)
        return library.permute_dims(made, places)
    raise InputError(f"{type(array)} can't be made here; give one as out=", name)


def stream_handle(stream: Any) -> int:
    """Give the number of a stream: an int, or what has ``__cuda_stream__`` or ``cuda_stream``.

    Examples
    --------
    >>> class Stream:
    ...     def __cuda_stream__(self):
    ...         return 0, 4096
    >>> stream_handle(Stream()), stream_handle(7)
    (4096, 7)
    """
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for attribute in ("cuda_stream", "ptr"):  # PyTorch's and CuPy's
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    raise InputError(f"expected a stream, its number or __cuda_stream__, got {stream!r}", "stream")
