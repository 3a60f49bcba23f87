"""PyTorch's arguments of convolutions, read as the problem that they ask for.

Everything here works on forms of arrays alone and is remembered: a program asks the same again.
Arrays come by the logical axes N, C and two or three spatial ones; of a 1-D convolution the height
is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, wraps
from operator import index
from types import MappingProxyType
from typing import Any, NamedTuple, ParamSpec

from foretune.errors import InputError
from foretune.functional.arrays import Form
from foretune.kernels.conv.arguments import DTYPES, ORDERS, tensors
from foretune.kernels.conv.problem import ConvProblem, conv_out_size
from foretune.kernels.problem import Tensor

#: Spatial dimensions -> axes of arrays with the channels first, and last.
LAYOUTS = MappingProxyType({1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")})
_P = ParamSpec("_P")


class Geometry(NamedTuple):
    """What PyTorch's convolutions take besides arrays, as it was given.

    Attributes
    ----------
    ndim : int
        Spatial dimensions, 1 to 3.
    stride, padding, dilation, groups, output_padding
        As PyTorch's.
    layout : str or None
        One of `LAYOUTS`, if the caller asks for one.
    """

    ndim: int
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: Any = 1
    output_padding: Any = 0
    layout: str | None = None


class ConvCall(NamedTuple):
    """A problem with its tensors.

    Attributes
    ----------
    problem : ConvProblem
        Without a bias.
    tensors : mapping
        x, w, y.
    output : str
        Which of them is computed.
    """

    problem: ConvProblem
    tensors: MappingProxyType[str, Tensor]
    output: str


def call_of(problem: ConvProblem) -> ConvCall:
    """Describe a problem's tensors.

    Examples
    --------
    >>> call_of(ConvProblem("B", 2, 4, (8, 8), 6, (3, 3))).output
    'x'
    """
    described = {tensor.name: tensor for tensor in tensors(problem)}
    output = next(tensor.name for tensor in described.values() if tensor.is_output)
    return ConvCall(problem, MappingProxyType(described), output)


def _remembered(function: Callable[_P, ConvCall]) -> Callable[_P, ConvCall]:
    """Keep answers, but for arguments that are lists."""
    kept: Callable[..., ConvCall] = lru_cache(maxsize=4096)(function)

    @wraps(function)
    def ask(*arguments: _P.args, **named: _P.kwargs) -> ConvCall:
        try:
            return kept(*arguments, **named)
        except TypeError:  # some argument has no hash
            return function(*arguments, **named)

    return ask


@_remembered
def forward(geometry: Geometry, x: Form, w: Form, bias: Form | None) -> ConvCall:
    """Read the arguments of a convolution.

    Examples
    --------
    >>> x = Form((2, 3, 8, 8), (192, 64, 8, 1), "FP32")
    >>> w = Form((4, 3, 3, 3), (27, 9, 3, 1), "FP32")
    >>> forward(Geometry(2, padding="same"), x, w, None).problem.out_size
    (8, 8)
    """
    _check_types({"x": x, "w": w})
    _check_filter("w", w, x.shape[1], "x", geometry)
    problem = _problem(
        "F", geometry, x.shape, w.shape, x.dtype, _layout(geometry, x, w), ("x", "w")
    )
    if bias is not None:
        _check_bias(bias, w.shape[0], x.dtype)
    return call_of(problem)


@_remembered
def input_gradient(
    geometry: Geometry, input_size: Sequence[int], weight: Form, grad_output: Form
) -> ConvCall:
    """Read the arguments of the gradient of a convolution's input."""
    _check_types({"weight": weight, "grad_output": grad_output})
    size = _full_size("input_size", input_size, geometry)
    _check_filter("weight", weight, size[1], "input_size", geometry)
    layout = _layout(geometry, weight, grad_output)
    names = ("input_size", "weight")
    problem = _problem("B", geometry, size, weight.shape, weight.dtype, layout, names)
    return _with_output_gradient(problem, grad_output, geometry.ndim)


@_remembered
def weight_gradient(
    geometry: Geometry, input: Form, weight_size: Sequence[int], grad_output: Form
) -> ConvCall:
    """Read the arguments of the gradient of a convolution's weights."""
    _check_types({"input": input, "grad_output": grad_output})
    size = _full_size("weight_size", weight_size, geometry)
    _check_filter("weight_size", Form(size, (), input.dtype), input.shape[1], "input", geometry)
    layout = _layout(geometry, input, grad_output)
    names = ("input", "weight_size")
    problem = _problem("W", geometry, input.shape, size, input.dtype, layout, names)
    return _with_output_gradient(problem, grad_output, geometry.ndim)


@_remembered
def transposed(geometry: Geometry, x: Form, w: Form, bias: Form | None) -> ConvCall:
    """Read the arguments of a transposed convolution: the backward-data problem whose y is x.

    Examples
    --------
    >>> x = Form((2, 4, 8, 8), (256, 64, 8, 1), "FP32")
    >>> w = Form((4, 3, 2, 2), (12, 4, 2, 1), "FP32")
    >>> problem = transposed(Geometry(2, stride=2), x, w, None).problem
    >>> problem.direction, problem.in_channels, problem.in_size
    ('B', 3, (16, 16))
    """
    _check_types({"x": x, "w": w})
    ndim = geometry.ndim
    groups = _count("groups", geometry.groups)
    if w.shape[0] != x.shape[1]:
        raise InputError(
            f"the first axis counts {w.shape[0]} channels, x has {x.shape[1]}; a transposed "
            "convolution's w is (channels of x, channels of y / groups, ...)",
            "w",
        )
    if x.shape[1] % groups:
        raise InputError(
            f"{x.shape[1]} channels of x can't be divided into {groups} groups", "groups"
        )
    stride = _sizes("stride", geometry.stride, ndim, 1)
    dilation = _sizes("dilation", geometry.dilation, ndim, 1)
    if isinstance(geometry.padding, str):
        raise InputError(f"expected numbers, got {geometry.padding!r}", "padding")
    padding = _sizes("padding", geometry.padding, ndim, 0)
    extra = _sizes("output_padding", geometry.output_padding, ndim, 0)
    for size, step in zip(extra, stride, strict=True):
        if size >= step:
            raise InputError(
                f"expected less than the stride {step}, got {size}; pad x by {size // step} at its "
                f"end, and give {size % step}",
                "output_padding",
            )
    made = tuple(
        (size - 1) * step - 2 * pad + dil * (fil - 1) + more + 1
        for size, step, pad, dil, fil, more in zip(
            _spatial(x.shape, ndim),
            stride,
            padding,
            dilation,
            _spatial(w.shape, ndim),
            extra,
            strict=True,
        )
    )
    if min(made) < 1:
        raise InputError(f"leaves nothing of the output: its size would be {made}", "padding")
    bare = Geometry(ndim, stride, padding, dilation, groups)
    full_size = (x.shape[0], w.shape[1] * groups, *_lifted(made, 1))
    layout = _layout(geometry, x, w)
    problem = _problem("B", bare, full_size, w.shape, x.dtype, layout, ("x", "w"))
    if bias is not None:
        _check_bias(bias, full_size[1], x.dtype)
    return call_of(problem)


def layout_of(geometry: Geometry) -> bool:
    """Whether the caller's arrays have their channels last.

    Examples
    --------
    >>> layout_of(Geometry(2, layout="NHWC"))
    True
    """
    layout = geometry.layout
    known = LAYOUTS[geometry.ndim]
    if layout is None or layout == known[0]:
        return False
    if layout != known[1]:
        raise InputError(f"expected {known[0]} or {known[1]}, got {layout!r}", "layout")
    return True


def _problem(
    direction: str,
    geometry: Geometry,
    in_shape: tuple[int, ...],
    filter_shape: tuple[int, ...],
    dtype: str,
    layout: str,
    names: tuple[str, str],
) -> ConvProblem:
    ndim = geometry.ndim
    stride = _sizes("stride", geometry.stride, ndim, 1)
    dilation = _sizes("dilation", geometry.dilation, ndim, 1)
    in_size, filter_size = _spatial(in_shape, ndim), _spatial(filter_shape, ndim)
    padding = _padding(geometry.padding, filter_size, stride, dilation)
    out_size = conv_out_size(in_size, filter_size, stride, padding, dilation)
    if min(out_size) < 1:
        padded = tuple(size + 2 * pad for size, pad in zip(in_size, padding, strict=True))
        reach = tuple(dil * (size - 1) + 1 for dil, size in zip(dilation, filter_size, strict=True))
        raise InputError(
            f"the filter reaches over {_by(reach)}, the padded {names[0]} has {_by(padded)}",
            names[1],
        )
    return ConvProblem(
        direction,
        in_shape[0],
        in_shape[1],
        _lifted(in_size, 1),
        filter_shape[0],
        _lifted(filter_size, 1),
        _lifted(stride, 1),
        _lifted(padding, 0),
        _lifted(dilation, 1),
        _count("groups", geometry.groups),
        dtype,
        layout,
    )


def _with_output_gradient(problem: ConvProblem, grad_output: Form, ndim: int) -> ConvCall:
    call = call_of(problem)
    expected = call.tensors["y"].shape
    if grad_output.shape != expected:
        raise InputError(
            f"expected shape {_shown(expected, ndim)}, got {_shown(grad_output.shape, ndim)}",
            "grad_output",
        )
    return call


def _layout(geometry: Geometry, *forms: Form) -> str:
    """Name the layout: the one asked for, else channels last if an array clearly lies so."""
    first, last = LAYOUTS[max(2, geometry.ndim)]
    if geometry.layout is not None:
        return last if layout_of(geometry) else first
    for form in forms:
        if form.lies_in(ORDERS[last]) and not form.lies_in(ORDERS[first]):
            return last
    return first


def _check_types(forms: dict[str, Form]) -> None:
    (first, form), *others = forms.items()
    for name, other in forms.items():
        if other.dtype not in DTYPES:
            raise InputError(
                f"elements are {other.dtype}, expected float32, float16 or bfloat16", name
            )
        if 0 in other.shape:
            raise InputError(f"has no elements: shape {other.shape}", name)
    for name, other in others:
        if other.dtype != form.dtype:
            raise InputError(f"elements are {other.dtype}, those of {first} {form.dtype}", name)


def _check_filter(name: str, w: Form, channels: int, channels_of: str, geometry: Geometry) -> None:
    groups = _count("groups", geometry.groups)
    for owner, count in ((channels_of, channels), (name, w.shape[0])):
        if count % groups:
            raise InputError(
                f"{count} channels of {owner} can't be divided into {groups} groups", "groups"
            )
    if w.shape[1] * groups != channels:
        expected = (w.shape[0], channels // groups, *w.shape[2:])
        raise InputError(
            f"expected shape {_shown(expected, geometry.ndim)} for {channels} channels of "
            f"{channels_of} in {groups} {'group' if groups == 1 else 'groups'}, got "
            f"{_shown(w.shape, geometry.ndim)}",
            name,
        )


def _check_bias(bias: Form, channels: int, dtype: str) -> None:
    if bias.dtype != dtype:
        raise InputError(f"elements are {bias.dtype}, those of x {dtype}", "bias")
    if bias.shape != (channels,):
        raise InputError(f"expected shape ({channels},), got {bias.shape}", "bias")


def _padding(
    padding: Any, filter_size: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[int, ...]:
    if not isinstance(padding, str):
        return _sizes("padding", padding, len(filter_size), 0)
    if padding == "valid":
        return (0,) * len(filter_size)
    if padding != "same":
        raise InputError(f"expected numbers, 'same' or 'valid', got {padding!r}", "padding")
    if max(stride) > 1:
        raise InputError(f"'same' goes with a stride of 1, got {_by(stride)}", "padding")
    total = [dil * (size - 1) for dil, size in zip(dilation, filter_size, strict=True)]
    if any(size % 2 for size in total):
        raise InputError(
            f"'same' would take one zero more at one end for a filter of {_by(filter_size)}; pad x "
            "before, by numpy.pad or torch.nn.functional.pad, and give 0",
            "padding",
        )
    return tuple(size // 2 for size in total)


def _sizes(name: str, value: Any, ndim: int, least: int) -> tuple[int, ...]:
    """Read one number for each spatial dimension, or one for all."""
    given = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    if len(given) == 1:
        given *= ndim
    try:
        sizes = tuple(map(_whole, given))
    except TypeError:
        sizes = ()
    if len(sizes) != ndim or min(sizes) < least:
        hint = ""
        if name == "padding" and len(given) == 2 * ndim:
            hint = "; zeros that differ between two ends have to be padded before"
        raise InputError(
            f"expected a whole number or {ndim}, {least} or more, got {value!r}{hint}", name
        )
    return sizes


def _full_size(name: str, value: Any, geometry: Geometry) -> tuple[int, ...]:
    """Read a shape in the caller's order of axes; give it by the logical ones."""
    axes = geometry.ndim + 2
    try:
        sizes = tuple(map(_whole, value))
    except TypeError:
        sizes = ()
    if len(sizes) != axes or min(sizes) < 1:
        raise InputError(f"expected {axes} whole numbers, 1 or more, got {value!r}", name)
    if layout_of(geometry):
        sizes = (sizes[0], sizes[-1], *sizes[1:-1])
    return (*sizes[:2], *_lifted(sizes[2:], 1))


def _count(name: str, value: Any) -> int:
    (count,) = _sizes(name, value, 1, 1)
    return count


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return index(value)


def _spatial(shape: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    return shape[len(shape) - ndim :]


def _lifted(sizes: tuple[int, ...], missing: int) -> tuple[int, ...]:
    return (missing, *sizes) if len(sizes) == 1 else sizes


def _shown(shape: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    return (*shape[:2], *_spatial(shape, ndim))


def _by(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))
