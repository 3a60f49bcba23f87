"""Shapes of inputs as they are typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.miopen.model_inputs import INDEX_DTYPES, InputShape, parse_input

SIZES = st.lists(st.integers(0, 9999), min_size=1, max_size=5).map(tuple)
DTYPES = st.sampled_from(("", "FP32", "FP16", "BF16", *INDEX_DTYPES))


@given(st.lists(st.tuples(SIZES, DTYPES), min_size=1, max_size=4), st.booleans())
def test_all_forms_are_read(tensors: list[tuple[tuple[int, ...], str]], named: bool) -> None:
    expected = [
        InputShape(sizes, f"in_{number}.x" if named else "", dtype)
        for number, (sizes, dtype) in enumerate(tensors)
    ]
    text = ",".join(
        (f"{tensor.name}=" if named else "")
        + "x".join(map(str, tensor.sizes))
        + (f":{tensor.dtype.lower()}" if tensor.dtype else "")
        for tensor in expected
    )
    assert parse_input(text) == expected


@given(st.text())
def test_all_else_is_told(text: str) -> None:
    try:
        tensors = parse_input(text)
    except InputError:
        return
    assert all(tensor.sizes for tensor in tensors)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1x3x", "expected a shape"),
        ("x=1,2", "name all tensors or none"),
        ("x=1,x=2", "twice"),
        ("1x3:float", "unknown data type 'float'; known are fp32"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_input(text)
