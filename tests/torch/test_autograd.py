"""Gradients, modules and modes of foretune.torch against PyTorch's own, on the processor."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import foretune.torch
from foretune import InputError
from foretune.functional import run
from foretune.torch import ConvolutionMode, give_back, use
from tests.kernels.processor import needs_processor

pytestmark = needs_processor
FAST: dict[str, Any] = {"mode": "FAST"}
OURS: Any = foretune.torch
RUN: Any = run


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Directions that foretune computed."""
    directions = []
    real = RUN.packed_call

    def packed_call(problem: Any, *arguments: Any) -> Any:
        directions.append(problem.direction)
        return real(problem, *arguments)

    monkeypatch.setattr(run, "packed_call", packed_call)
    return directions


def _tensor(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


def _close(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    assert actual.shape == expected.shape
    scale = max(1.0, float(expected.detach().abs().max()))
    torch.testing.assert_close(actual.double(), expected.double(), rtol=0, atol=tolerance * scale)


def _gradients(function: Callable[..., Tensor], *tensors: Tensor) -> list[Any]:
    """Give a result, its gradients, and those of a function of the gradients."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    y = function(*leaves)
    seed = _tensor(*y.shape, seed=9).to(y)
    first = torch.autograd.grad(y, leaves, seed, create_graph=True)
    length: Any = sum((grad.float() ** 2).sum() for grad in first)
    second = torch.autograd.grad(length, leaves, allow_unused=True)
    return [y, *first, *(grad for grad in second if grad is not None)]


@st.composite
def _calls(draw: st.DrawFn) -> tuple[Any, ...]:
    ndim = draw(st.sampled_from((1, 2, 2, 3)))
    groups = draw(st.integers(1, 2))
    channels, outputs = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    filter_size = draw(st.tuples(*[st.integers(1, 3)] * ndim))
    stride = draw(st.integers(1, 2))
    return (
        ndim,
        (draw(st.integers(1, 2)), channels, *[draw(st.integers(5, 7))] * ndim),
        (outputs, channels // groups, *filter_size),
        (stride, draw(st.integers(0, 2)), draw(st.integers(1, 2)), groups),
    )


@settings(max_examples=10, deadline=None)
@given(_calls())
def test_gradients_of_convolutions_are_pytorchs(call: tuple[Any, ...]) -> None:
    ndim, in_shape, filter_shape, arguments = call
    tensors = (_tensor(*in_shape), _tensor(*filter_shape, seed=1), _tensor(filter_shape[0], seed=2))
    ours, theirs = (getattr(home, f"conv{ndim}d") for home in (OURS, functional))
    wide = [tensor.double() for tensor in tensors]
    actual = _gradients(lambda x, w, bias: ours(x, w, bias, *arguments, **FAST), *tensors)
    expected = _gradients(lambda x, w, bias: theirs(x, w, bias, *arguments), *wide)
    for one, other in zip(actual, expected, strict=True):
        _close(one, other)


@settings(max_examples=10, deadline=None)
@given(_calls())
def test_gradients_of_transposed_convolutions_are_pytorchs(call: tuple[Any, ...]) -> None:
    ndim, in_shape, (outputs, inputs, *filter_size), (stride, padding, dilation, groups) = call
    shape = (in_shape[1], outputs // groups, *filter_size)
    assert inputs == in_shape[1] // groups
    tensors = (_tensor(*in_shape), _tensor(*shape, seed=1), _tensor(outputs, seed=2))
    arguments = (stride, padding, stride - 1, groups, dilation)
    ours, theirs = (getattr(home, f"conv_transpose{ndim}d") for home in (OURS, functional))
    wide = [tensor.double() for tensor in tensors]
    actual = _gradients(lambda x, w, bias: ours(x, w, bias, *arguments, **FAST), *tensors)
    expected = _gradients(lambda x, w, bias: theirs(x, w, bias, *arguments), *wide)
    for one, other in zip(actual, expected, strict=True):
        _close(one, other)


X, W, BIAS = _tensor(2, 4, 8, 8), _tensor(6, 4, 3, 3, seed=1), _tensor(6, seed=2)


def test_only_wanted_gradients_are_computed(computed: list[str]) -> None:
    w = W.clone().requires_grad_()
    OURS.conv2d(X, w, **FAST).sum().backward()
    assert computed == ["F", "W"]
    computed.clear()
    with torch.no_grad():
        assert not OURS.conv2d(X, w, **FAST).requires_grad
    OURS.conv2d(X.clone().requires_grad_(), W, **FAST).sum().backward()
    assert computed == ["F", "F", "B"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_small_types_have_gradients(dtype: torch.dtype) -> None:
    tensors = [tensor.to(dtype) for tensor in (X, W, BIAS)]
    actual = _gradients(lambda x, w, bias: OURS.conv2d(x, w, bias, **FAST), *tensors)[:4]
    wide = [tensor.double() for tensor in tensors]
    expected = _gradients(lambda x, w, bias: functional.conv2d(x, w, bias), *wide)[:4]
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == dtype
        _close(one, other, 2e-2)


def test_autocast_computes_with_small_types() -> None:
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = OURS.conv2d(x, w, BIAS, **FAST)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.float32
    expected = torch.autograd.grad(
        functional.conv2d(x, w.bfloat16().float(), BIAS).sum(), x, retain_graph=True
    )[0]
    _close(x.grad, expected, 2e-2)
    with torch.autocast("cpu", torch.bfloat16, enabled=False):
        assert OURS.conv2d(x, w, BIAS, **FAST).dtype == torch.float32


def test_channels_last_goes_in_and_comes_out() -> None:
    x = X.to(memory_format=torch.channels_last).requires_grad_()
    w = W.clone().requires_grad_()
    y = OURS.conv2d(x, w, BIAS, padding=1, **FAST)
    assert y.is_contiguous(memory_format=torch.channels_last)
    _close(y, functional.conv2d(X, W, BIAS, padding=1))
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.is_contiguous(memory_format=torch.channels_last)
    expected = functional.conv2d(X.double().requires_grad_(), W.double(), padding=1)
    assert w.grad is not None
    assert w.grad.shape == w.shape
    assert expected.shape == y.shape


def test_tensors_that_lie_otherwise_are_copied() -> None:
    x = X.transpose(2, 3)
    w = W.expand(6, 4, 3, 3)[:, :, :, [0, 1, 2]].flip(2)
    leaf = x.clone().requires_grad_()
    y = OURS.conv2d(leaf[:, :, 1:], w, stride=2, **FAST)
    _close(y, functional.conv2d(x[:, :, 1:], w, stride=2))
    # The gradient of a sum has no elements of its own.
    y.sum().backward()
    wide = x.double().requires_grad_()
    torch.autograd.backward(functional.conv2d(wide[:, :, 1:], w.double(), stride=2).sum())
    assert leaf.grad is not None
    assert wide.grad is not None
    _close(leaf.grad, wide.grad)


def test_same_padding_of_even_filters_is_pytorchs() -> None:
    w = _tensor(3, 4, 2, 4)
    for dilation in (1, 2, (1, 3)):
        actual = _gradients(
            lambda x, w, d=dilation: OURS.conv2d(x, w, padding="same", dilation=d, **FAST), X, w
        )
        expected = _gradients(
            lambda x, w, d=dilation: functional.conv2d(x, w, padding="same", dilation=d),
            X.double(),
            w.double(),
        )
        for one, other in zip(actual, expected, strict=True):
            _close(one, other)


def test_output_padding_may_be_whole_strides() -> None:
    w = _tensor(4, 2, 3, 3)
    for extra, dilation in ((1, 2), ((2, 1), 3), ([0, 3], 4)):
        arguments = {"output_padding": extra, "dilation": dilation}
        actual = _gradients(
            lambda x, w, a=arguments: OURS.conv_transpose2d(x, w, **a, **FAST), X, w
        )
        expected = _gradients(
            lambda x, w, a=arguments: functional.conv_transpose2d(x, w, **a),
            X.double(),
            w.double(),
        )
        for one, other in zip(actual, expected, strict=True):
            _close(one, other)


def test_one_image_has_no_batch_axis() -> None:
    _close(OURS.conv2d(X[0], W, BIAS, **FAST), functional.conv2d(X[0], W, BIAS))


@pytest.mark.parametrize(
    ("arguments", "where", "message"),
    [
        ((X, W[:, :2]), "weight", r"expected shape \(6, 4, 3, 3\)"),
        ((X.numpy(), W), "input", "expected a tensor"),
        ((X, None), "weight", "expected a tensor"),
        ((X.double(), W.double()), "input", "elements are float64"),
        ((X, W, BIAS[:3]), "bias", r"expected shape \(6,\)"),
        ((X[0, 0], W), "input", "expected 4 axes"),
    ],
)
def test_wrong_arguments_are_named(arguments: Any, where: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        OURS.conv2d(*arguments, **FAST)
    assert raised.value.where == where


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding="same"),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=4, padding_mode="reflect"),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.Flatten(2),
        nn.Conv1d(4, 2, 5),
        nn.Unflatten(1, (1, 2)),
    )


def _step(model: Any, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    y = model(x)
    (y**2).mean().backward()
    return [y, *(p.grad for p in model.parameters() if p.grad is not None)]


def test_a_models_convolutions_are_taken_over_and_given_back(computed: list[str]) -> None:
    model, x = _model(), _tensor(2, 3, 8, 8)
    expected = _step(copy.deepcopy(model), x)
    assert not computed
    names = list(model.state_dict())
    assert use(model, **FAST) is model
    assert list(model.state_dict()) == names
    for one, other in zip(_step(model, x), expected, strict=True):
        _close(one, other, 1e-4)
    # No gradient of the model's input is asked for.
    assert sorted(computed) == sorted("FFBF" + "W" + "BW" + "FW" + "BW")
    computed.clear()
    restored = pickle.loads(pickle.dumps(model))
    _close(restored(x), expected[0], 1e-4)
    assert computed
    computed.clear()
    give_back(model)
    assert {type(module) for module in model} == {type(module) for module in _model()}
    _step(model, x)
    assert not computed


def test_a_mode_takes_over_what_is_asked_for_by_function(computed: list[str]) -> None:
    x = X.clone().requires_grad_()
    with ConvolutionMode(**FAST):
        y = functional.conv2d(input=x, weight=W, bias=BIAS, stride=2)
        z = torch.conv_transpose2d(y, W, stride=2)
    assert computed == ["F", "B"]
    torch.autograd.backward(z.sum())
    assert len(computed) == 4
    _close(z, functional.conv_transpose2d(functional.conv2d(X, W, BIAS, stride=2), W, stride=2))
    functional.conv2d(X, W)
    assert len(computed) == 4


def test_what_foretune_has_no_kernels_for_is_left_to_pytorch(computed: list[str]) -> None:
    with ConvolutionMode(**FAST):
        assert functional.conv2d(X.double(), W.double()).dtype == torch.float64
        assert functional.conv2d(X[:0], W).shape == (0, 6, 6, 6)
        assert functional.conv2d(X.to("meta"), W.to("meta")).is_meta
    assert not computed


def test_pytorchs_wish_for_determinism_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = RUN.selector

    def selector(device: str) -> Any:
        chooser = real(device)

        class Chooser:
            def choose(self, problem: Any, **options: Any) -> Any:
                asked.append(options["deterministic"])
                return chooser.choose(problem, **options)

        return Chooser()

    monkeypatch.setattr(run, "selector", selector)
    OURS.conv2d(X, W, **FAST)
    torch.use_deterministic_algorithms(True)
    try:
        OURS.conv2d(X, W, **FAST)
    finally:
        torch.use_deterministic_algorithms(False)
    OURS.conv2d(X, W, deterministic=True, **FAST)
    assert asked == [False, True, True]


def test_captured_models_may_be_taken_over() -> None:
    problems = foretune.torch.capture(use(nn.Conv2d(3, 8, 3)), (1, 3, 8, 8))
    assert problems == foretune.torch.capture(nn.Conv2d(3, 8, 3), (1, 3, 8, 8))


def test_compiled_models_ask_foretune_all_the_same(computed: list[str]) -> None:
    model, x = use(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), **FAST), _tensor(1, 3, 8, 8)
    expected = _step(model, x)
    computed.clear()
    for one, other in zip(_step(torch.compile(model, backend="eager"), x), expected, strict=True):
        _close(one, other)
    assert computed == ["F", "W"]


def test_a_step_may_be_computed_again_for_its_gradients() -> None:
    model, x = use(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), **FAST), _tensor(1, 3, 8, 8)
    expected = _step(model, x)
    model.zero_grad()
    y: Any = checkpoint(model, x, use_reentrant=False)
    torch.autograd.backward((y**2).mean())
    for one, other in zip(model.parameters(), expected[1:], strict=True):
        assert one.grad is not None
        _close(one.grad, other)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_gradients_on_a_gpu_are_pytorchs(dtype: torch.dtype, memory_format: Any) -> None:
    x = _tensor(4, 16, 20, 20).to("cuda", dtype).to(memory_format=memory_format)
    w, bias = (_tensor(*shape, seed=1).to("cuda", dtype) for shape in ((32, 16, 3, 3), (32,)))
    # What starts at an address that isn't aligned is copied.
    shifted = torch.cat([w.flatten()[:1], w.flatten()])[1:].view_as(w)
    assert torch.equal(OURS.conv2d(x, shifted, **FAST), OURS.conv2d(x, w, **FAST))
    tensors = (x, w, bias)
    streams: Any = torch.cuda
    for stream in (streams.current_stream(), streams.Stream()):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            actual = _gradients(lambda x, w, bias: OURS.conv2d(x, w, bias, 2, 1, **FAST), *tensors)[
                :4
            ]
        torch.cuda.synchronize()
        wide = [tensor.double() for tensor in tensors]
        expected = _gradients(lambda x, w, bias: functional.conv2d(x, w, bias, 2, 1), *wide)[:4]
        for one, other in zip(actual, expected, strict=True):
            assert one.is_cuda
            _close(one, other, 1e-4 if dtype == torch.float32 else 3e-2)
    assert actual[0].is_contiguous(memory_format=memory_format)
