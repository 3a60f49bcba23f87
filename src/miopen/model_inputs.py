"""Shapes of a model's inputs, as they are written on a command line."""

from __future__ import annotations

import re
from dataclasses import dataclass

from foretune.errors import InputError
from foretune.kernels.problem import DTYPE_BYTES

#: Types that an input may be given besides those of a convolution.
INDEX_DTYPES = ("INT64", "INT32", "BOOL")

_INPUT = re.compile(r"(?:([A-Za-z_][\w.:/-]*)=)?([0-9]+(?:x[0-9]+)*)(?::([A-Za-z]\w*))?")


@dataclass(frozen=True)
class InputShape:
    """One tensor of a model's input.

    Parameters
    ----------
    sizes : tuple of int
        Its shape.
    name : str, optional
        The argument that it is; "" where the position says it.
    dtype : str, optional
        MIOpen's name of its type, or "INT64", "INT32", "BOOL"; "" for the model's.

    Examples
    --------
    >>> InputShape((1, 3, 224, 224)).name
    ''
    """

    sizes: tuple[int, ...]
    name: str = ""
    dtype: str = ""


def parse_input(text: str) -> list[InputShape]:
    """Tensors of one run's input.

    Parameters
    ----------
    text : str
        Sizes with "x" between them; a comma between several tensors, a name and "=" before the
        sizes, a colon and a type after them.

    Raises
    ------
    InputError
        If it is something else.

    Examples
    --------
    >>> [tensor.sizes for tensor in parse_input("2x4x64x64,2:int64")]
    [(2, 4, 64, 64), (2,)]
    >>> parse_input("image=1x3x224x224")[0].name
    'image'
    """
    tensors = [_parse_tensor(part.strip(), text) for part in text.split(",")]
    if len({bool(tensor.name) for tensor in tensors}) > 1:
        raise InputError(f"name all tensors or none, got {text!r}", "--input")
    names = [tensor.name for tensor in tensors if tensor.name]
    if len(set(names)) < len(names):
        raise InputError(f"a name stands there twice, got {text!r}", "--input")
    return tensors


def _parse_tensor(part: str, text: str) -> InputShape:
    match = _INPUT.fullmatch(part)
    if not match:
        raise InputError(
            "expected a shape such as 1x3x224x224, or image=1x3x224x224,tokens=1x77:int64, "
            f"got {text!r}",
            "--input",
        )
    name, sizes, dtype = match.groups(default="")
    if dtype and dtype.upper() not in (*DTYPE_BYTES, *INDEX_DTYPES):
        known = ", ".join(known.lower() for known in (*DTYPE_BYTES, *INDEX_DTYPES))
        raise InputError(f"unknown data type {dtype!r}; known are {known}", "--input")
    return InputShape(tuple(int(size) for size in sizes.split("x")), name, dtype.upper())
