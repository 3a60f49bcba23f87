"""Convolutions with PyTorch's arguments: the same results, one clear message for what is wrong."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretune
from foretune import ConvProblem, InputError
from foretune.functional import run as functional_run
from foretune.kernels.runtime.device import CompileError, DeviceError
from foretune.kernels.store import Store
from foretune.predictor.select import Selector
from tests.kernels.conv_reference import convolve
from tests.kernels.processor import needs_processor

torch = pytest.importorskip("torch", reason="PyTorch, which these are compared with, is missing")
Array = npt.NDArray[Any]
#: Not typed, because much here is wrong on purpose.
F: Any = foretune
run: Any = functional_run
#: No measuring: what is computed doesn't depend on who computes it.
FAST: dict[str, Any] = {"mode": "FAST"}
TOLERANCE = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _close(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    actual, expected = _plain(actual), _plain(expected)
    assert actual.shape == expected.shape
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def _plain(array: Any) -> Array:
    if isinstance(array, torch.Tensor):
        return array.double().numpy()  # type: ignore[no-any-return]
    return np.asarray(array).astype(np.float64)


@st.composite
def _calls(draw: st.DrawFn) -> dict[str, Any]:
    """Shapes and arguments of a convolution in 1 to 3 dimensions."""
    ndim = draw(st.sampled_from((1, 2, 2, 3)))

    def each(least: int, most: int) -> Any:
        one = st.integers(least, most)
        every = st.tuples(*[one] * ndim)
        return draw(st.one_of(one, every, every.map(list), one.map(lambda size: (size,))))

    groups = draw(st.integers(1, 3))
    filter_size = draw(st.tuples(*[st.integers(1, 3)] * ndim))
    return {
        "ndim": ndim,
        "batch": draw(st.integers(1, 3)),
        "in_channels": groups * draw(st.integers(1, 4)),
        "out_channels": groups * draw(st.integers(1, 4)),
        # Large enough for every drawn filter.
        "in_size": draw(st.tuples(*[st.integers(7, 10 if ndim < 3 else 8)] * ndim)),
        "filter_size": filter_size,
        "stride": each(1, 3),
        "padding": each(0, 2),
        "dilation": each(1, 3),
        "groups": groups,
        "dtype": draw(st.sampled_from(("float32", "float32", "float16", "bfloat16"))),
        "is_last": draw(st.booleans()),
        "has_bias": draw(st.booleans()),
        "seed": draw(st.integers(0, 9)),
    }


def _tensors(call: dict[str, Any], *shapes: tuple[int, ...]) -> list[Any]:
    made = []
    for place, shape in enumerate(shapes):
        array = _array(*shape, seed=call["seed"] + place)
        tensor = torch.from_numpy(array).to(getattr(torch, call["dtype"]))
        if call["is_last"] and tensor.ndim in CHANNELS_LAST:
            tensor = tensor.to(memory_format=CHANNELS_LAST[tensor.ndim])
        made.append(tensor)
    return made


def _functional(name: str, call: dict[str, Any]) -> tuple[Any, Any]:
    name = name.format(f"{call['ndim']}d")
    home = torch.nn.grad if name.endswith(("_input", "_weight")) else torch.nn.functional
    return getattr(F, name), getattr(home, name)


def _wide(tensor: Any) -> Any:
    return None if tensor is None else tensor.double()


@needs_processor
@settings(max_examples=15, deadline=None)
@given(_calls())
def test_convolutions_are_pytorchs(call: dict[str, Any]) -> None:
    ours, theirs = _functional("conv{}", call)
    channels, outputs, groups = call["in_channels"], call["out_channels"], call["groups"]
    x, w, bias = _tensors(
        call,
        (call["batch"], channels, *call["in_size"]),
        (outputs, channels // groups, *call["filter_size"]),
        (outputs,),
    )
    bias = bias if call["has_bias"] else None
    arguments = (call["stride"], call["padding"], call["dilation"], groups)
    y = ours(x, w, bias, *arguments, **FAST)
    assert y.dtype == x.dtype
    tolerance = TOLERANCE[call["dtype"]]
    _close(y, theirs(_wide(x), _wide(w), _wide(bias), *arguments), tolerance)
    # Where there is one channel, nobody can tell.
    if call["is_last"] and x.ndim in CHANNELS_LAST and channels > 1:
        assert y.is_contiguous(memory_format=CHANNELS_LAST[x.ndim])

    (dy,) = _tensors(call, tuple(y.shape))
    ours, theirs = _functional("conv{}_input", call)
    dx = ours(x.shape, w, dy, *arguments, **FAST)
    _close(dx, theirs(x.shape, _wide(w), _wide(dy), *arguments), tolerance)
    ours, theirs = _functional("conv{}_weight", call)
    dw = ours(x, w.shape, dy, *arguments, **FAST)
    _close(dw, theirs(_wide(x), w.shape, _wide(dy), *arguments), tolerance)


@needs_processor
@settings(max_examples=15, deadline=None)
@given(_calls(), st.integers(0, 2))
def test_transposed_convolutions_are_pytorchs(call: dict[str, Any], extra: int) -> None:
    ours, theirs = _functional("conv_transpose{}", call)
    channels, outputs, groups = call["in_channels"], call["out_channels"], call["groups"]
    x, w, bias = _tensors(
        call,
        (call["batch"], channels, *call["in_size"]),
        (channels, outputs // groups, *call["filter_size"]),
        (outputs,),
    )
    bias = bias if call["has_bias"] else None
    stride = call["stride"]
    extra = min(extra, (stride if isinstance(stride, int) else min(stride)) - 1)
    arguments = (stride, call["padding"], extra, groups, call["dilation"])
    y = ours(x, w, bias, *arguments, **FAST)
    expected = theirs(_wide(x), _wide(w), _wide(bias), *arguments)
    _close(y, expected, TOLERANCE[call["dtype"]])


X, W, BIAS = _array(2, 4, 8, 8), _array(6, 4, 3, 3, seed=1), _array(6, seed=2)


def _expected(padding: tuple[int, int] = (0, 0)) -> Array:
    problem = ConvProblem("F", 2, 4, (8, 8), 6, (3, 3), padding=padding)
    return convolve(problem, {"x": X, "w": W})


@needs_processor
def test_padding_has_names() -> None:
    _close(F.conv2d(X, W, padding="same", **FAST), _expected((1, 1)))
    _close(F.conv2d(X, W, padding="valid", **FAST), _expected())


@needs_processor
def test_one_image_has_no_batch_axis() -> None:
    y = F.conv2d(X[0], W, BIAS, **FAST)
    _close(y, _expected()[0] + BIAS[:, None, None])
    out = np.empty_like(y)
    assert F.conv2d(X[0], W, BIAS, out=out, **FAST) is out
    np.testing.assert_array_equal(out, y)


@needs_processor
def test_axes_may_be_in_the_order_of_channels_last() -> None:
    # Shapes where the order of axes can't be told from their sizes.
    x, w = _array(8, 8, 8, 8), _array(8, 8, 3, 3, seed=1)
    expected = F.conv2d(x, w, padding=1, **FAST)
    last = [np.moveaxis(array, 1, -1) for array in (x, w)]
    for arrays in (last, [array.copy() for array in last], [last[0].copy(), last[1]]):
        y = F.conv2d(*arrays, padding=1, layout="NHWC", **FAST)
        _close(np.moveaxis(y, -1, 1), expected)
        assert y.flags.c_contiguous
    size, dy = last[0].shape, last[0]
    dx = F.conv2d_input(size, last[1], dy, padding=1, layout="NHWC", **FAST)
    expected = F.conv2d_input(x.shape, w, x, padding=1, **FAST)
    _close(np.moveaxis(dx, -1, 1), expected)
    dw = F.conv2d_weight(dy, last[1].shape, dy, padding=1, layout="NHWC", **FAST)
    _close(np.moveaxis(dw, -1, 1), F.conv2d_weight(x, w.shape, x, padding=1, **FAST))


@needs_processor
def test_arrays_that_lie_otherwise_are_read_right() -> None:
    # All sizes alike: an order of axes that is guessed would be a wrong one.
    x, w = _array(4, 4, 4, 4), _array(4, 4, 4, 4, seed=1)
    problem = ConvProblem("F", 4, 4, (4, 4), 4, (4, 4), padding=(2, 2))
    expected = convolve(problem, {"x": x, "w": w})

    def last(array: Array) -> Array:
        return np.moveaxis(np.moveaxis(array, 1, -1).copy(), -1, 1)

    def shifted(array: Array) -> Array:
        whole = np.zeros(array.size + 1, np.float32)
        whole[1:] = array.ravel()
        return whole[1:].reshape(array.shape)

    changes = (np.copy, last, np.asfortranarray, shifted, lambda a: a[:, :, ::-1][:, :, ::-1])
    for change_x in changes:
        for change_w in changes:
            y = F.conv2d(change_x(x), change_w(w), padding=2, **FAST)
            _close(y, expected)
    for change in changes:
        out = change(np.zeros(expected.shape, np.float32))
        assert F.conv2d(last(x), w, padding=2, out=out, **FAST) is out
        _close(out, expected)
    _close(F.conv2d(np.broadcast_to(x[:1], x.shape), w, **FAST)[0], expected[0, :, 2:3, 2:3])


@needs_processor
@pytest.mark.parametrize("stored", [np.float16, ml_dtypes.bfloat16, np.uint16])
def test_small_types_come_as_they_are(stored: Any) -> None:
    real = ml_dtypes.bfloat16 if stored is np.uint16 else stored
    x, w, bias = (array.astype(real).view(stored) for array in (X, W, BIAS))
    y = F.conv2d(x, w, bias, **FAST)
    assert y.dtype == stored
    _close(y.view(real), _expected() + BIAS[:, None, None], 3e-2)


@needs_processor
def test_a_bias_of_a_transposed_convolution_goes_into_out() -> None:
    w, bias = _array(4, 5, 2, 2), _array(5)
    out = np.full((2, 5, 16, 16), np.nan, np.float32)
    assert F.conv_transpose2d(X, w, bias, stride=2, out=out, **FAST) is out
    _close(out, F.conv_transpose2d(X, w, stride=2, **FAST) + bias[:, None, None])


T = torch.from_numpy(X)


@pytest.mark.parametrize(
    ("call", "where", "message"),
    [
        (lambda: F.conv2d([1.0], W), "x", "expected a NumPy array"),
        (lambda: F.conv2d(X, None), "w", "expected a NumPy array"),
        (
            lambda: F.conv2d(X.astype(float), W),
            "x",
            "elements are float64, expected float32",
        ),
        (lambda: F.conv2d(X, W.astype("f2")), "w", "elements are FP16, those of x FP32"),
        (lambda: F.conv2d(X.astype(">f4"), W), "x", "order of another machine"),
        (lambda: F.conv2d(X[:0], W), "x", "no elements"),
        (lambda: F.conv2d(X[0, 0], W), "x", r"expected 4 axes \(N, C, H, W\), got 2"),
        (lambda: F.conv3d(X, W), "w", "expected 5 axes"),
        (lambda: F.conv2d(X, W[0]), "w", r"expected 4 axes .* shape \(4, 3, 3\)"),
        (
            lambda: F.conv2d(X, W[:, :2]),
            "w",
            r"expected shape \(6, 4, 3, 3\) for 4 channels",
        ),
        (lambda: F.conv2d(X, W, BIAS[:5]), "bias", r"expected shape \(6,\), got \(5,\)"),
        (lambda: F.conv2d(X, W, BIAS.astype("f2")), "bias", "elements are FP16"),
        (lambda: F.conv2d(X, W, groups=3), "groups", "can't be divided into 3 groups"),
        (lambda: F.conv2d(X, W, groups=0), "groups", "got 0"),
        (lambda: F.conv2d(X, W, groups="2"), "groups", "got '2'"),
        (lambda: F.conv2d(X, W, stride=0), "stride", "1 or more, got 0"),
        (lambda: F.conv2d(X, W, stride=(1, 1, 1)), "stride", r"got \(1, 1, 1\)"),
        (lambda: F.conv2d(X, W, stride=1.5), "stride", "got 1.5"),
        (lambda: F.conv2d(X, W, dilation=None), "dilation", "got None"),
        (
            lambda: F.conv2d(X, W, dilation=9),
            "w",
            "reaches over 19x19, the padded x has 8x8",
        ),
        (lambda: F.conv2d(X, W, padding=-1), "padding", "0 or more, got -1"),
        (lambda: F.conv2d(X, W, padding=(1, 2, 1, 2)), "padding", "padded before"),
        (lambda: F.conv2d(X, W, padding="full"), "padding", "'same' or 'valid', got 'full'"),
        (lambda: F.conv2d(X, W, padding="same", stride=2), "padding", "a stride of 1"),
        (lambda: F.conv2d(X, W[..., :2], padding="same"), "padding", "numpy.pad"),
        (lambda: F.conv2d(X, W, layout="CHWN"), "layout", "expected NCHW or NHWC"),
        (lambda: F.conv2d(X, W, out=[]), "out", "expected a NumPy array"),
        (lambda: F.conv2d(X, W, out=X), "out", r"expected shape \(2, 6, 6, 6\)"),
        (lambda: F.conv2d(T.clone().requires_grad_(), W), "x", "foretune.torch"),
        (lambda: F.conv_transpose2d(X, W), "w", "counts 6 channels, x has 4"),
        (
            lambda: F.conv_transpose2d(X, W[:4], output_padding=1),
            "output_padding",
            "less than the stride 1, got 1",
        ),
        (lambda: F.conv_transpose2d(X, W[:4], padding="same"), "padding", "numbers"),
        (lambda: F.conv_transpose2d(X, W[:4], padding=5), "padding", "leaves nothing"),
        (lambda: F.conv_transpose2d(X, W[:4], groups=3), "groups", "can't be divided"),
        (lambda: F.conv2d_input((2, 4, 8), W, X), "input_size", "expected 4 whole numbers"),
        (lambda: F.conv2d_input(None, W, X), "input_size", "got None"),
        (lambda: F.conv2d_input(X.shape, W, X), "grad_output", r"expected shape \(2, 6, 6"),
        (
            lambda: F.conv2d_weight(X, (6, 3, 3, 3), X),
            "weight_size",
            "for 4 channels of inp",
        ),
        (lambda: F.conv2d_weight(X, [6, 4, 3, 0], X), "weight_size", "1 or more"),
    ],
)
def test_wrong_arguments_are_named(call: Any, where: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        call()
    assert raised.value.where == where
    assert "\n" not in str(raised.value)


@needs_processor
def test_wrong_options_are_named() -> None:
    with pytest.raises(TypeError, match="colour"):
        F.conv2d(X, W, colour="red")
    read_only = np.zeros((2, 6, 6, 6), np.float32)
    read_only.flags.writeable = False
    with pytest.raises(InputError, match=r"^out: can't be written"):
        F.conv2d(X, W, out=read_only, **FAST)
    whole = np.zeros((2, 4, 8, 8), np.float32)
    inside = whole.ravel()[: 2 * 4 * 36].reshape(2, 4, 6, 6)
    with pytest.raises(InputError, match=r"^out: lies over x"):
        F.conv2d(whole, W[:4], out=inside, **FAST)
    for option in ({"mode": "SLOW"}, {"budget_ms": 0}, {"workspace_limit": -1}, {"risk": 2}):
        (where,) = option
        with pytest.raises(InputError) as raised:
            F.conv2d(X, W, **option)
        assert raised.value.where == where


@needs_processor
def test_what_cannot_be_launched_costs_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    chooser = Selector("cpu", store=Store(":memory:"))
    problem = ConvProblem("F", 2, 4, (8, 8), 6, (3, 3))
    first = chooser.choose(problem, mode="FAST")
    assert first.solver != "ConvNaive"
    real = run.packed_call

    def failing(problem: Any, device: str, solver: str, *rest: Any) -> Any:
        if solver == first.solver:
            raise CompileError("the compiler gave up")
        return real(problem, device, solver, *rest)

    monkeypatch.setattr(run, "selector", lambda _: chooser)
    monkeypatch.setattr(run, "packed_call", failing)
    for _ in range(2):
        _close(F.conv2d(X, W, BIAS, **FAST), _expected() + BIAS[:, None, None])
    again = chooser.choose(problem, mode="FAST")
    assert (again.solver, again.config) != (first.solver, first.config)
    assert any("the compiler gave up" in note for note in chooser.notes())


@needs_processor
def test_a_device_that_is_broken_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    chooser = Selector("cpu", store=Store(":memory:"))

    def failing(*_: Any, **__: Any) -> Any:
        raise DeviceError("the device is gone")

    monkeypatch.setattr(run, "selector", lambda _: chooser)
    monkeypatch.setattr(run, "packed_call", failing)
    with pytest.raises(DeviceError, match="the device is gone"):
        F.conv2d(X, W, **FAST)
    assert not chooser.notes()
