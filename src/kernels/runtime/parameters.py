"""Kernel parameters as the launch calls of CUDA and HIP take them: an array of pointers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence


class Parameters:
    """Copies of parameters in memory that stays in place, and pointers to them.

    Parameters
    ----------
    values : sequence of int or bytes
        Addresses on the device, and packed numbers or structs.

    Attributes
    ----------
    address : int
        Where the array of pointers lies.

    Examples
    --------
    >>> parameters = Parameters([4096, b"abcd"])
    >>> pointers = (ctypes.c_void_p * 2).from_address(parameters.address)
    >>> ctypes.c_uint64.from_address(pointers[0]).value, ctypes.string_at(pointers[1], 4)
    (4096, b'abcd')
    """

    def __init__(self, values: Sequence[int | bytes]) -> None:
        self._values = [
            ctypes.c_uint64(value)
            if isinstance(value, int)
            else ctypes.create_string_buffer(value, max(1, len(value)))
            for value in values
        ]
        self._pointers = (ctypes.c_void_p * max(1, len(values)))(
            *(ctypes.addressof(value) for value in self._values)
        )
        self.address = ctypes.addressof(self._pointers)
