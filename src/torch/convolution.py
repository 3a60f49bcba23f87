"""Differentiable convolutions on foretune's own kernels, as often as one likes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import floordiv, ge, mod
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor
from torch.nn.functional import pad

from foretune.errors import InputError
from foretune.functional.arrays import Form, tensor_form
from foretune.functional.conv import logical
from foretune.functional.conv_arguments import ConvCall, Geometry, call_of, forward, transposed
from foretune.functional.run import Asked, run

#: What is computed from what. The three directions are the derivatives of one trilinear form of
#: x, w and y, so each one's gradients are the other two.
_INPUTS = {"y": ("x", "w"), "x": ("w", "y"), "w": ("x", "y")}
_DIRECTIONS = {"y": "F", "x": "B", "w": "W"}
_NAMES = {"x": "x", "w": "w", "y": "y"}
#: Types that autocast changes.
_CASTABLE = (torch.float32, torch.float16, torch.bfloat16)

Sizes = int | Sequence[int]


class Options(TypedDict, total=False):
    """What every function here takes by name; see `foretune.conv2d`.

    ``deterministic`` is what PyTorch is asked for, unless given.
    """

    mode: str | None
    budget_ms: float | None
    workspace_limit: int | None
    deterministic: bool
    risk: float


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    **options: Unpack[Options],
) -> Tensor:
    """Convolve signals, as `torch.nn.functional.conv1d` does.

    Examples
    --------
    >>> conv1d(torch.ones(2, 3, 16), torch.ones(4, 3, 5), padding="same").shape
    torch.Size([2, 4, 16])
    """
    return _conv(Geometry(1, stride, padding, dilation, groups), input, weight, bias, options)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    **options: Unpack[Options],
) -> Tensor:
    """Convolve images, as `torch.nn.functional.conv2d` does, on foretune's kernels.

    It can be differentiated, gradients too. Under autocast its arguments are cast as PyTorch's are.
    Channels-last inputs or weights give a channels-last result. Work goes to PyTorch's current
    stream.

    Parameters
    ----------
    input, weight, bias, stride, padding, dilation, groups
        As PyTorch's; float32, float16 or bfloat16.
    **options
        mode, budget_ms, workspace_limit, deterministic, risk: as for `foretune.conv2d`.

    Returns
    -------
    Tensor

    Raises
    ------
    InputError
        If arguments don't fit together.

    Examples
    --------
    >>> x, w = torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3, requires_grad=True)
    >>> conv2d(x, w, padding=1).sum().backward()
    >>> w.grad[0, 0, 1, 1]
    tensor(128.)
    """
    return _conv(Geometry(2, stride, padding, dilation, groups), input, weight, bias, options)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    **options: Unpack[Options],
) -> Tensor:
    """Convolve volumes, as `torch.nn.functional.conv3d` does.

    Examples
    --------
    >>> conv3d(torch.ones(1, 2, 4, 8, 8), torch.ones(3, 2, 3, 3, 3)).shape
    torch.Size([1, 3, 2, 6, 6])
    """
    return _conv(Geometry(3, stride, padding, dilation, groups), input, weight, bias, options)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    **options: Unpack[Options],
) -> Tensor:
    """Convolve signals transposed, as `torch.nn.functional.conv_transpose1d` does.

    Examples
    --------
    >>> conv_transpose1d(torch.ones(2, 3, 16), torch.ones(3, 4, 2), stride=2).shape
    torch.Size([2, 4, 32])
    """
    geometry = Geometry(1, stride, padding, dilation, groups, output_padding)
    return _conv_transpose(geometry, input, weight, bias, options)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    **options: Unpack[Options],
) -> Tensor:
    """Convolve images transposed, as `torch.nn.functional.conv_transpose2d` does.

    Examples
    --------
    >>> conv_transpose2d(torch.ones(1, 3, 8, 8), torch.ones(3, 2, 2, 2), stride=2).shape
    torch.Size([1, 2, 16, 16])
    """
    geometry = Geometry(2, stride, padding, dilation, groups, output_padding)
    return _conv_transpose(geometry, input, weight, bias, options)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    **options: Unpack[Options],
) -> Tensor:
    """Convolve volumes transposed, as `torch.nn.functional.conv_transpose3d` does.

    Examples
    --------
    >>> conv_transpose3d(torch.ones(1, 3, 2, 4, 4), torch.ones(3, 2, 2, 2, 2), stride=2).shape
    torch.Size([1, 2, 4, 8, 8])
    """
    geometry = Geometry(3, stride, padding, dilation, groups, output_padding)
    return _conv_transpose(geometry, input, weight, bias, options)


def autocast_dtype(tensor: Tensor) -> torch.dtype:
    """Give the type that a convolution computes with: autocast's, where that is on.

    Examples
    --------
    >>> with torch.autocast("cpu", torch.bfloat16):
    ...     autocast_dtype(torch.ones(1))
    torch.bfloat16
    """
    kind = tensor.device.type
    if tensor.dtype in _CASTABLE and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return tensor.dtype


class _Convolution(torch.autograd.Function):
    """Any of the three directions; inputs are by logical axes, the bias None but for outputs."""

    @staticmethod
    def forward(call: ConvCall, asked: Asked, bias: Any, *inputs: Any) -> Any:
        names = _INPUTS[call.output]
        arrays = {
            name: (tensor.detach(), tensor_form(tensor))
            for name, tensor in zip(names, inputs, strict=True)
        }
        return run(call, arrays, _NAMES, asked, bias=None if bias is None else bias.detach())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
        ctx.call, ctx.asked, _, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        call: ConvCall = ctx.call
        names = _INPUTS[call.output]
        tensors = {**dict(zip(names, ctx.saved_tensors, strict=True)), call.output: grad}
        bias = None
        if ctx.needs_input_grad[2]:
            bias = grad.sum((0, *range(2, grad.ndim)))
        gradients = [
            _convolve(
                _derivative(call.problem, name),
                ctx.asked,
                None,
                *(tensors[needed] for needed in _INPUTS[name]),
            )
            if wanted
            else None
            for name, wanted in zip(names, ctx.needs_input_grad[3:], strict=True)
        ]
        return None, None, bias, *gradients


_convolve: Callable[..., Any] = _Convolution.apply


@lru_cache(maxsize=4096)
def _derivative(problem: Any, output: str) -> ConvCall:
    return call_of(replace(problem, direction=_DIRECTIONS[output]))


def _conv(
    geometry: Geometry, x: Tensor, w: Tensor, bias: Tensor | None, options: Options
) -> Tensor:
    if geometry.padding == "same":
        geometry, x = _evenly_padded(geometry, x, w)
    return _apply(forward, geometry, x, w, bias, options)


def _conv_transpose(
    geometry: Geometry, x: Tensor, w: Tensor, bias: Tensor | None, options: Options
) -> Tensor:
    geometry, x = _padded_at_the_end(geometry, x)
    return _apply(transposed, geometry, x, w, bias, options)


def _apply(
    read: Callable[[Geometry, Form, Form, Form | None], ConvCall],
    geometry: Geometry,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    options: Options,
) -> Tensor:
    if torch.compiler.is_compiling():
        # Not before, because it imports the compiler.
        untraced: Callable[..., Tensor] = torch.compiler.disable(_computed)  # type: ignore[no-untyped-call]
        return untraced(read, geometry, x, w, bias, options)
    return _computed(read, geometry, x, w, bias, options)


def _computed(
    read: Callable[[Geometry, Form, Form, Form | None], ConvCall],
    geometry: Geometry,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    options: Options,
) -> Tensor:
    for name, tensor in (("input", x), ("weight", w), ("bias", bias)):
        if not isinstance(tensor, Tensor) and not (tensor is None and name == "bias"):
            raise InputError(f"expected a tensor, got {type(tensor)}", name)
    is_one = x.ndim == geometry.ndim + 1
    x = logical(geometry, _cast(x[None] if is_one else x), "input")
    w = logical(geometry, _cast(w), "weight")
    bias = None if bias is None else _cast(bias)
    try:
        call = read(
            geometry, tensor_form(x), tensor_form(w), None if bias is None else tensor_form(bias)
        )
    except InputError as error:
        names = {"x": "input", "w": "weight"}
        raise InputError(error.message, names.get(error.where, error.where)) from None
    given = {"w": w, "x" if call.output == "y" else "y": x}
    options.setdefault("deterministic", torch.are_deterministic_algorithms_enabled())
    inputs = [given[name] for name in _INPUTS[call.output]]
    y: Tensor = _convolve(call, Asked(**options), bias, *inputs)
    if geometry.ndim == 1:
        y = y[:, :, 0, :]
    return y[0] if is_one else y


def _cast(tensor: Tensor) -> Tensor:
    return tensor.to(autocast_dtype(tensor))


def _evenly_padded(geometry: Geometry, x: Tensor, w: Tensor) -> tuple[Geometry, Tensor]:
    """Add the zero that an even filter takes more at the end than at the start."""
    dilations = _each(geometry.dilation, geometry.ndim)
    total = [dil * (size - 1) for dil, size in zip(dilations, w.shape[2:], strict=False)]
    if not any(size % 2 for size in total):
        return geometry, x
    more = [zeros for size in reversed(total) for zeros in (0, size % 2)]
    return geometry._replace(padding=tuple(size // 2 for size in total)), pad(x, more)


def _padded_at_the_end(geometry: Geometry, x: Tensor) -> tuple[Geometry, Tensor]:
    """Add zeros for output padding of whole strides, which kernels don't know."""
    if geometry.output_padding == 0:
        return geometry, x
    extra = _each(geometry.output_padding, geometry.ndim)
    stride = _each(geometry.stride, geometry.ndim)
    if not any(map(ge, extra, stride)):
        return geometry, x
    counts = map(floordiv, reversed(extra), reversed(stride))
    padded = pad(x, [zeros for count in counts for zeros in (0, count)])
    return geometry._replace(output_padding=tuple(map(mod, extra, stride))), padded


def _each(value: Sizes, ndim: int) -> list[int]:
    return [value] * ndim if isinstance(value, int) else list(value) * (ndim // len(value))
