"""A convolution problem: what is asked for, apart from who computes it and where."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import ClassVar

from foretune.errors import InputError
from foretune.kernels.problem import DTYPE_BYTES

DIRECTIONS = ("F", "B", "W")
LAYOUTS_2D = ("NCHW", "NHWC", "CHWN", "NCHWc", "CHWNc")
LAYOUTS_3D = ("NCDHW", "NDHWC")
MAX_SIZE = 2**31 - 1


@dataclass(frozen=True)
class ConvProblem:
    """A 2-D or 3-D convolution, forward or one of its two gradients.

    It is the physical convolution: ``in`` is always x and ``out`` is always y, also for the
    gradients. (MIOpen's database keys swap the two for B and W; that is done where keys are
    read and written.) Tuples hold (height, width) or (depth, height, width).

    Parameters
    ----------
    direction : {'F', 'B', 'W'}
        Forward, backward data (gradient of x), backward weights (gradient of w, "wrw").
    batch : int
        Images, N.
    in_channels, out_channels : int
        Channels of x and of y, over all groups (C and K).
    in_size : tuple of int
        Spatial size of x.
    filter_size : tuple of int
        Spatial size of the filter.
    stride, dilation : tuple of int, optional
        One for each spatial dimension. Default 1.
    padding : tuple of int, optional
        Zeros on both sides of each spatial dimension; dimensions may differ. Default 0.
    groups : int, default 1
        Divides both channel counts.
    dtype, weight_dtype, out_dtype : str, optional
        MIOpen's names ("FP32", "FP16", "BF16", "INT8", ...) for x, w and y. The last two are
        those of x unless given.
    layout, weight_layout, out_layout : str, optional
        For x, w and y: "NCHW", "NHWC", "NCDHW", "NDHWC", ... Default NCHW or NCDHW.
    bias : int, default 0
        1 if a bias is added.
    cast, weight_cast, out_cast : str, optional
        Type that MIOpen is asked to cast x, w, y to while computing ("" for none).
    out_size : tuple of int, optional
        Spatial size of y. It follows from the others and is checked if given. Where a filter is
        larger than the padded input MIOpen takes 1; such a problem is accepted only if
        ``out_size`` says so explicitly.

    Notes
    -----
    What is left out is filled in, and a filled field is as good as a given one: where
    `dataclasses.replace` changes sizes it needs ``out_size=()``, and where it changes ``dtype`` or
    ``layout``, those of w and y too.

    Raises
    ------
    InputError
        If a field is out of range, or the fields don't fit together.

    Examples
    --------
    >>> problem = ConvProblem("F", 32, 3, (224, 224), 64, (7, 7), stride=(2, 2), padding=(3, 3))
    >>> problem.out_size
    (112, 112)
    """

    operation: ClassVar[str] = "conv"

    direction: str
    batch: int
    in_channels: int
    in_size: tuple[int, ...]
    out_channels: int
    filter_size: tuple[int, ...]
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    dtype: str = "FP32"
    layout: str = ""
    weight_dtype: str = ""
    out_dtype: str = ""
    weight_layout: str = ""
    out_layout: str = ""
    bias: int = 0
    cast: str = ""
    weight_cast: str = ""
    out_cast: str = ""
    out_size: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not (
            type(self.in_size) is type(self.filter_size) is type(self.stride) is tuple
            and type(self.padding) is type(self.dilation) is type(self.out_size) is tuple
        ):
            self._make_tuples()
        ndim = len(self.in_size)
        if ndim not in (2, 3):
            raise InputError(f"expected 2 or 3 spatial dimensions, got {ndim}", "in_size")
        self._fill_defaults(ndim)
        # Naming the field that is wrong takes most of the time, so it is done only if one is.
        try:
            is_valid = self._is_valid(ndim)
        except TypeError:  # some field is nothing that can be looked up or compared
            is_valid = False
        if not is_valid:
            self._check_fields(ndim)
        self._check_out_size()

    def _make_tuples(self) -> None:
        """Take lists for tuples; a problem is a key, and lists have no hash."""
        for name in ("in_size", "filter_size", "stride", "padding", "dilation", "out_size"):
            sizes = getattr(self, name)
            try:
                if isinstance(sizes, str | bytes):
                    raise TypeError
                made = () if sizes is None else tuple(sizes)
            except TypeError:
                raise InputError(
                    f"expected a number for each spatial dimension, such as (3, 3), got {sizes!r}",
                    name,
                ) from None
            object.__setattr__(self, name, made)

    def _fill_defaults(self, ndim: int) -> None:
        fill = object.__setattr__
        if not self.stride:
            fill(self, "stride", (1,) * ndim)
        if not self.padding:
            fill(self, "padding", (0,) * ndim)
        if not self.dilation:
            fill(self, "dilation", (1,) * ndim)
        if not self.layout:
            fill(self, "layout", "NCHW" if ndim == 2 else "NCDHW")
        if not self.weight_dtype:
            fill(self, "weight_dtype", self.dtype)
        if not self.out_dtype:
            fill(self, "out_dtype", self.dtype)
        if not self.weight_layout:
            fill(self, "weight_layout", self.layout)
        if not self.out_layout:
            fill(self, "out_layout", self.layout)

    def _is_valid(self, ndim: int) -> bool:
        """Whether `_check_fields` finds nothing, at a fraction of its price."""
        groups = self.groups
        positive = (
            *(self.batch, self.in_channels, self.out_channels, groups),
            *self.in_size,
            *self.filter_size,
            *self.stride,
            *self.dilation,
        )
        padding = (*self.padding, self.bias)
        layouts = LAYOUTS_2D if ndim == 2 else LAYOUTS_3D
        return (
            self.direction in DIRECTIONS
            and ndim == len(self.filter_size) == len(self.stride)
            and ndim == len(self.padding) == len(self.dilation)
            and set(map(type, positive + padding)) == {int}
            and min(positive) >= 1
            and max(positive) <= MAX_SIZE
            and min(padding) >= 0
            and max(padding) <= MAX_SIZE
            and not self.in_channels % groups
            and not self.out_channels % groups
            and self.dtype in DTYPE_BYTES
            and self.weight_dtype in DTYPE_BYTES
            and self.out_dtype in DTYPE_BYTES
            and self.layout in layouts
            and self.weight_layout in layouts
            and self.out_layout in layouts
            and (self.cast == "" or self.cast in DTYPE_BYTES)
            and (self.weight_cast == "" or self.weight_cast in DTYPE_BYTES)
            and (self.out_cast == "" or self.out_cast in DTYPE_BYTES)
        )

    def _check_fields(self, ndim: int) -> None:
        if self.direction not in DIRECTIONS:
            raise InputError(f"expected F, B or W, got {self.direction!r}", "direction")
        for name in ("batch", "in_channels", "out_channels", "groups"):
            _check_number(name, getattr(self, name), 1)
        for name in ("in_size", "filter_size", "stride", "padding", "dilation"):
            values = getattr(self, name)
            if len(values) != ndim:
                raise InputError(f"expected {ndim} numbers, got {len(values)}", name)
            for value in values:
                _check_number(name, value, 0 if name == "padding" else 1)
        _check_number("bias", self.bias, 0)
        for name in ("in_channels", "out_channels"):
            if getattr(self, name) % self.groups:
                raise InputError(
                    f"{getattr(self, name)} channels can't be divided into {self.groups} groups",
                    name,
                )
        for name in ("dtype", "weight_dtype", "out_dtype", "cast", "weight_cast", "out_cast"):
            value = getattr(self, name)
            is_known = isinstance(value, str) and value in DTYPE_BYTES
            if not is_known and not ("cast" in name and value == ""):
                known = ", ".join(DTYPE_BYTES)
                raise InputError(f"unknown data type {value!r}; known are {known}", name)
        layouts = LAYOUTS_2D if ndim == 2 else LAYOUTS_3D
        for name in ("layout", "weight_layout", "out_layout"):
            if getattr(self, name) not in layouts:
                raise InputError(
                    f"{getattr(self, name)!r} is no layout of a {ndim}-D convolution; "
                    f"known are {', '.join(layouts)}",
                    name,
                )

    def _check_out_size(self) -> None:
        derived = conv_out_size(
            self.in_size, self.filter_size, self.stride, self.padding, self.dilation
        )
        fits = min(derived) >= 1
        if not self.out_size:
            if not fits:
                raise InputError(
                    f"the filter {_x(self.filter_size)} doesn't fit the padded input: "
                    f"the output size would be {_x(derived)}",
                    "out_size",
                )
            object.__setattr__(self, "out_size", derived)
            return
        expected = derived if fits else tuple(max(1, size) for size in derived)
        if self.out_size != expected:
            raise InputError(
                f"{_x(self.out_size)} doesn't follow from the other sizes, which give "
                f"{_x(derived)}; () takes what follows",
                "out_size",
            )
        # (54.0, 54.0) is equal to it, but is written otherwise.
        object.__setattr__(self, "out_size", expected)

    @property
    def ndim(self) -> int:
        """Spatial dimensions, 2 or 3."""
        return len(self.in_size)

    @cached_property
    def _hash(self) -> int:
        return hash(
            (
                self.direction,
                self.batch,
                self.in_channels,
                self.in_size,
                self.out_channels,
                self.filter_size,
                self.stride,
                self.padding,
                self.dilation,
                self.groups,
                self.dtype,
                self.layout,
            )
        )

    # Problems are dictionary keys on the path that answers in microseconds.
    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, object]:
        """Leave out the hash, which another process may compute differently."""
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    @property
    def shape_key(self) -> tuple[int | tuple[int, ...], ...]:
        """What is one shape when data is split: all sizes but the batch; no type, no direction."""
        return (
            self.in_channels,
            self.in_size,
            self.out_channels,
            self.filter_size,
            self.padding,
            self.stride,
            self.dilation,
            self.groups,
        )

    @property
    def flops(self) -> int:
        """Floating-point operations of the direct algorithm, the same for F, B and W."""
        return (
            2
            * self.batch
            * self.out_channels
            * prod(self.out_size)
            * (self.in_channels // self.groups)
            * prod(self.filter_size)
        )

    @property
    def in_bytes(self) -> int:
        """Bytes of x."""
        return self.batch * self.in_channels * prod(self.in_size) * DTYPE_BYTES[self.dtype]

    @property
    def weight_bytes(self) -> int:
        """Bytes of w."""
        return (
            self.out_channels
            * (self.in_channels // self.groups)
            * prod(self.filter_size)
            * DTYPE_BYTES[self.weight_dtype]
        )

    @property
    def out_bytes(self) -> int:
        """Bytes of y."""
        return self.batch * self.out_channels * prod(self.out_size) * DTYPE_BYTES[self.out_dtype]


def conv_out_size(
    in_size: tuple[int, ...],
    filter_size: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[int, ...]:
    """Spatial size of y by the usual formula; less than 1 where the filter doesn't fit.

    Examples
    --------
    >>> conv_out_size((56, 56), (3, 3), (2, 2), (1, 1), (1, 1))
    (28, 28)
    """
    # A list, not a generator: this is half the price, and problems are made by the 100,000.
    return tuple(
        [
            (size + 2 * pad - dil * (fil - 1) - 1) // step + 1
            for size, fil, step, pad, dil in zip(
                in_size, filter_size, stride, padding, dilation, strict=True
            )
        ]
    )


def _check_number(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"expected a whole number, got {value!r}", name)
    if not least <= value <= MAX_SIZE:
        # Python refuses to write thousands of digits.
        shown = value if abs(value) < 10**30 else "one of more than 30 digits"
        raise InputError(f"expected {least} to {MAX_SIZE}, got {shown}", name)


def _x(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))
