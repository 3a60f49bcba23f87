"""Device memory that is an address, and launches that take it: what CUDA and HIP share."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from foretune.kernels.runtime.device import Buffer, LaunchArgument


class AddressBuffer(Buffer):
    """Memory of a GPU by its address.

    Parameters
    ----------
    address : int
    nbytes : int
    release : callable, optional
        Gives the memory back; takes the address. Default: it is somebody else's.

    Examples
    --------
    >>> AddressBuffer(4096, 1024).part(256, 128).address
    4352
    """

    def __init__(
        self, address: int, nbytes: int, release: Callable[[int], None] | None = None
    ) -> None:
        self.address = address
        self.nbytes = nbytes
        self._release = release

    def part(self, offset: int, nbytes: int) -> AddressBuffer:
        """View a part; it stays valid until the whole is freed."""
        return AddressBuffer(self.address + offset, nbytes)

    def free(self) -> None:
        """Give the memory back, once the work that was started is done."""
        release, self._release = self._release, None
        if release is not None:
            release(self.address)


class Parameters:
    """Copies of launch arguments in memory that stays in place, and an array of pointers to them.

    Parameters
    ----------
    arguments : sequence of LaunchArgument

    Attributes
    ----------
    address : int
        Where the array of pointers lies.

    Examples
    --------
    >>> parameters = Parameters([AddressBuffer(4096, 1), b"abcd"])
    >>> pointers = (ctypes.c_void_p * 2).from_address(parameters.address)
    >>> ctypes.c_uint64.from_address(pointers[0]).value, ctypes.string_at(pointers[1], 4)
    (4096, b'abcd')
    """

    def __init__(self, arguments: Sequence[LaunchArgument]) -> None:
        self._values = [
            ctypes.create_string_buffer(argument, max(1, len(argument)))
            if isinstance(argument, bytes)
            else ctypes.c_uint64(0 if argument is None else address_of(argument))
            for argument in arguments
        ]
        self._pointers = (ctypes.c_void_p * max(1, len(arguments)))(
            *(ctypes.addressof(value) for value in self._values)
        )
        self.address = ctypes.addressof(self._pointers)


def address_of(buffer: Buffer) -> int:
    """Address of a buffer of such a backend."""
    assert isinstance(buffer, AddressBuffer), "memory of another backend"
    return buffer.address
