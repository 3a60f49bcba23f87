"""Callers' arrays: NumPy's, PyTorch's, and made-up ones of devices that aren't here."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from foretune.errors import InputError
from foretune.kernels.runtime.arrays import empty_like, stream_handle, view_of

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class Tensor(ctypes.Structure):
    """DLTensor of dlpack.h, written down once more."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Versioned(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


class MadeUp:
    """An array on a device that needn't be there."""

    def __init__(self, device: int, shape: tuple[int, ...], **facts: Any) -> None:
        self.device, self.asked = device, []  # type: ignore[var-annotated]
        self.versioned = facts.pop("versioned", False)
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        strides = facts.pop("strides", None)
        self._strides = strides and (ctypes.c_int64 * len(shape))(*strides)
        code, bits = facts.pop("dtype", (2, 32))
        tensor = Tensor(
            facts.pop("address", 4096),
            *(device, facts.pop("index", 0), len(shape), code, bits, facts.pop("lanes", 1)),
            *(ctypes.addressof(self._shape), strides and ctypes.addressof(self._strides)),
            facts.pop("byte_offset", 0),
        )
        if self.versioned:
            version = (ctypes.c_uint32 * 2)(1, 0)
            self._managed: Any = Versioned(version, None, None, facts.pop("flags", 0), tensor)
        else:
            self._managed = Managed(tensor, None, None)
        assert not facts
        self.index = tensor.device_id

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, self.index

    def __dlpack__(self, stream: Any = None, **versions: Any) -> Any:
        if versions and not self.versioned:
            raise TypeError("unexpected keyword argument max_version")
        self.asked.append(stream)
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        return _new_capsule(ctypes.addressof(self._managed), name, None)


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(
    ("device", "place"), [(10, "hip:3"), (2, "cuda:3"), (13, "cuda:3"), (1, "cpu"), (11, "cpu")]
)
def test_reads_made_up_capsules(device: int, place: str, versioned: bool) -> None:
    array = MadeUp(
        *(device, (2, 3)), strides=(1, 2), dtype=(4, 16), index=3, byte_offset=64,
        versioned=versioned,
    )  # fmt: skip
    view = view_of(array, "x", stream=99)
    assert (view.place, view.address) == (place, 4096 + 64)
    assert (view.shape, view.strides, view.dtype) == ((2, 3), (1, 2), "BF16")
    assert not view.is_read_only
    assert array.asked == [None if place == "cpu" else 99]


def test_missing_strides_are_contiguous() -> None:
    assert view_of(MadeUp(10, (2, 3, 4)), "x").strides == (12, 4, 1)


def test_read_only_is_seen() -> None:
    assert view_of(MadeUp(10, (2,), versioned=True, flags=1), "x").is_read_only
    fixed = np.zeros(3, np.float32)
    fixed.flags.writeable = False
    assert view_of(fixed, "x").is_read_only


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ((2, 16), "FP16"),
        ((2, 64), "FP64"),
        ((1, 16), "BF16"),
        ((0, 8), "INT8"),
        ((5, 64), "type 5"),
    ],
)
def test_types_have_their_names(dtype: tuple[int, int], name: str) -> None:
    assert name in view_of(MadeUp(10, (2,), dtype=dtype), "x").dtype


def test_vectors_are_no_elements() -> None:
    assert view_of(MadeUp(10, (2,), lanes=4), "x").dtype not in ("FP32", "FP16")


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (np.float32, "FP32"),
        (np.float16, "FP16"),
        (ml_dtypes.bfloat16, "BF16"),
        (np.uint16, "BF16"),
        (np.complex64, "complex64"),
    ],
)
def test_numpy_arrays_are_seen_where_they_lie(dtype: Any, name: str) -> None:
    array = np.zeros((4, 6, 5), dtype)[1:, ::2]
    view = view_of(array, "x")
    assert (view.place, view.address, view.dtype) == ("cpu", array.ctypes.data, name)
    assert (view.shape, view.strides) == ((3, 3, 5), (30, 10, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_torch_tensors_are_seen_where_they_lie(dtype: torch.dtype) -> None:
    tensor = torch.zeros(2, 3, 4, 5, dtype=dtype).to(memory_format=torch.channels_last)[1:]
    view = view_of(tensor, "x")
    names = {torch.float32: "FP32", torch.float16: "FP16", torch.bfloat16: "BF16"}
    assert (view.place, view.address, view.dtype) == ("cpu", tensor.data_ptr(), names[dtype])
    assert (view.shape, view.strides) == (tuple(tensor.shape), tensor.stride())


def test_memory_lives_as_long_as_the_view() -> None:
    view = view_of(torch.arange(100_000, dtype=torch.float32), "x")
    gc.collect()
    content = (ctypes.c_float * 100_000).from_address(view.address)
    assert list(content[:3]) == [0, 1, 2]
    assert content[99_999] == 99_999


@pytest.mark.parametrize(
    ("array", "message"),
    [
        ([1, 2], "x: expected a NumPy array or one with __dlpack__, got <class 'list'>"),
        (torch.zeros(2, requires_grad=True), "x: torch.* doesn't give the array: .*grad"),
        (MadeUp(7, (2,)), "x: lies on a device of DLPack's type 7"),
        (np.zeros(2, "i1,f4")["f1"], "x: elements don't lie at multiples of their size"),
    ],
)
def test_says_what_is_no_array(array: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        view_of(array, "x")


def test_new_arrays_are_of_the_same_kind() -> None:
    made = empty_like(np.zeros(1, np.float16), (2, 3, 4, 5), (0, 2, 3, 1), "out")
    assert (made.dtype, made.shape) == (np.float16, (2, 3, 4, 5))
    assert made.strides == (120, 2, 30, 6)
    tensor = empty_like(torch.zeros(1, dtype=torch.bfloat16), (2, 3, 4, 5), (0, 2, 3, 1), "out")
    assert (tensor.dtype, tuple(tensor.shape)) == (torch.bfloat16, (2, 3, 4, 5))
    assert tensor.stride() == (60, 1, 15, 3)
    with pytest.raises(InputError, match=r"out: .*give one as out="):
        empty_like(MadeUp(10, (2,)), (2,), (0,), "out")


def test_streams_have_numbers() -> None:
    class Torch:
        cuda_stream = 5

    class CuPy:
        ptr = 6

    assert [stream_handle(stream) for stream in (Torch(), CuPy(), 0)] == [5, 6, 0]
    with pytest.raises(InputError, match="stream: expected a stream"):
        stream_handle("default")
