"""Convolutions, transposed ones and their gradients, with PyTorch's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Unpack

from foretune.errors import InputError
from foretune.functional.arrays import Form, form_of, permuted
from foretune.functional.conv_arguments import (
    LAYOUTS,
    ConvCall,
    Geometry,
    forward,
    input_gradient,
    layout_of,
    transposed,
    weight_gradient,
)
from foretune.functional.run import Asked, Options, run
from foretune.kernels.runtime.arrays import place_of

#: Tensors of a problem -> arguments of the functions that ask for it.
FORWARD = MappingProxyType({"x": "x", "w": "w", "y": "out"})
TRANSPOSED = MappingProxyType({"y": "x", "w": "w", "x": "out"})
INPUT_GRADIENT = MappingProxyType({"y": "grad_output", "w": "weight", "x": "out"})
WEIGHT_GRADIENT = MappingProxyType({"x": "input", "y": "grad_output", "w": "out"})

Sizes = int | Sequence[int]


def conv1d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    **options: Unpack[Options],
) -> Any:
    """Convolve signals; as `conv2d`, with arrays (N, C, L).

    Examples
    --------
    >>> import numpy as np
    >>> x, w = np.ones((2, 3, 16), np.float32), np.ones((4, 3, 5), np.float32)
    >>> conv1d(x, w, padding="same").shape
    (2, 4, 16)
    """
    return _conv(Geometry(1, stride, padding, dilation, groups), x, w, bias, Asked(**options))


def conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    **options: Unpack[Options],
) -> Any:
    """Convolve images, as `torch.nn.functional.conv2d` does.

    Parameters
    ----------
    x : array
        (N, C, H, W), or (C, H, W) for one image. A NumPy array, or one with ``__dlpack__``:
        float32, float16, bfloat16 (or its bits in 16-bit unsigned integers). Channels may be the
        fastest axis in memory (PyTorch's ``channels_last``); the result then lies so too.
    w : array
        (K, C / groups, height, width), elements as those of x.
    bias : array, optional
        (K,)
    stride, dilation : int or (int, int), default 1
    padding : int, (int, int), 'same' or 'valid', default 0
        Zeros at both ends of each axis.
    groups : int, default 1
    **options
        ``layout="NHWC"``: the arrays' axes are N, H, W, C, w's K, height, width, C / groups.
        ``out=``: where the result goes.
        ``mode=``: how much may be measured when the problem is new: "NORMAL", "FAST" (nothing),
        "HYBRID" or "DYNAMIC_HYBRID". Default: what FORETUNE_FIND_MODE says.
        ``budget_ms=``: milliseconds that such measuring may take.
        ``risk=``: share of unmeasured picks that may be slower than 1.10 times the best (0.05).
        ``workspace_limit=``: bytes of scratch memory that may be used.
        ``deterministic=True``: leave out what adds in an order that differs from run to run.
        ``device=``: such as "cuda:0". Default: where the arrays lie.
        ``stream=``: of the caller's, on which everything is started. Default: PyTorch's current
        stream for its tensors, else one of foretune's own, which is waited for.

    Returns
    -------
    array
        (N, K, height, width), of the library that x comes from.

    Raises
    ------
    InputError
        If arguments don't fit together.

    Examples
    --------
    >>> import numpy as np
    >>> x, w = np.ones((2, 3, 8, 8), np.float32), np.ones((4, 3, 3, 3), np.float32)
    >>> y = conv2d(x, w, padding=1)
    >>> y.shape, float(y[0, 0, 0, 0]), float(y[0, 0, 1, 1])
    ((2, 4, 8, 8), 12.0, 27.0)
    """
    return _conv(Geometry(2, stride, padding, dilation, groups), x, w, bias, Asked(**options))


def conv3d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    **options: Unpack[Options],
) -> Any:
    """Convolve volumes; as `conv2d`, with arrays (N, C, D, H, W).

    Examples
    --------
    >>> import numpy as np
    >>> x, w = np.ones((1, 2, 4, 8, 8), np.float32), np.ones((3, 2, 3, 3, 3), np.float32)
    >>> conv3d(x, w, padding=(1, 0, 0)).shape
    (1, 3, 4, 6, 6)
    """
    return _conv(Geometry(3, stride, padding, dilation, groups), x, w, bias, Asked(**options))


def conv_transpose1d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    **options: Unpack[Options],
) -> Any:
    """Convolve signals transposed; as `conv_transpose2d`, with arrays (N, C, L).

    Examples
    --------
    >>> import numpy as np
    >>> x, w = np.ones((2, 3, 16), np.float32), np.ones((3, 4, 2), np.float32)
    >>> conv_transpose1d(x, w, stride=2).shape
    (2, 4, 32)
    """
    geometry = Geometry(1, stride, padding, dilation, groups, output_padding)
    return _conv_transpose(geometry, x, w, bias, Asked(**options))


def conv_transpose2d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    **options: Unpack[Options],
) -> Any:
    """Convolve images transposed, as `torch.nn.functional.conv_transpose2d` does.

    Parameters
    ----------
    x : array
        (N, C, H, W), or (C, H, W) for one image.
    w : array
        (C, K / groups, height, width)
    bias : array, optional
        (K,)
    stride, padding, dilation : int or (int, int)
    output_padding : int or (int, int), default 0
        Rows and columns more at the end; less than the stride.
    groups : int, default 1
    **options
        As for `conv2d`.

    Returns
    -------
    array
        (N, K, height, width)

    Raises
    ------
    InputError
        If arguments don't fit together.

    Examples
    --------
    >>> import numpy as np
    >>> x, w = np.ones((1, 3, 8, 8), np.float32), np.ones((3, 2, 2, 2), np.float32)
    >>> y = conv_transpose2d(x, w, np.ones(2, np.float32), stride=2)
    >>> y.shape, float(y[0, 0, 0, 0])
    ((1, 2, 16, 16), 4.0)
    """
    geometry = Geometry(2, stride, padding, dilation, groups, output_padding)
    return _conv_transpose(geometry, x, w, bias, Asked(**options))


def conv_transpose3d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    **options: Unpack[Options],
) -> Any:
    """Convolve volumes transposed; as `conv_transpose2d`, with arrays (N, C, D, H, W).

    Examples
    --------
    >>> import numpy as np
    >>> x, w = np.ones((1, 3, 2, 4, 4), np.float32), np.ones((3, 2, 2, 2, 2), np.float32)
    >>> conv_transpose3d(x, w, stride=2).shape
    (1, 2, 4, 8, 8)
    """
    geometry = Geometry(3, stride, padding, dilation, groups, output_padding)
    return _conv_transpose(geometry, x, w, bias, Asked(**options))


def conv1d_input(
    input_size: Sequence[int],
    weight: Any,
    grad_output: Any,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    **options: Unpack[Options],
) -> Any:
    """Compute the gradient of `conv1d` by its input; as `conv2d_input`.

    Examples
    --------
    >>> import numpy as np
    >>> w, dy = np.ones((4, 3, 5), np.float32), np.ones((2, 4, 12), np.float32)
    >>> conv1d_input((2, 3, 16), w, dy).shape
    (2, 3, 16)
    """
    geometry = Geometry(1, stride, padding, dilation, groups)
    return _conv_input(geometry, input_size, weight, grad_output, Asked(**options))


def conv2d_input(
    input_size: Sequence[int],
    weight: Any,
    grad_output: Any,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    **options: Unpack[Options],
) -> Any:
    """Compute the gradient of `conv2d` by its input, as `torch.nn.grad.conv2d_input` does.

    Parameters
    ----------
    input_size : sequence of int
        Shape of the input, (N, C, H, W).
    weight : array
    grad_output : array
        Gradient by the output, (N, K, height, width).
    stride, padding, dilation, groups
        As given to `conv2d`.
    **options
        As for `conv2d`.

    Returns
    -------
    array
        (N, C, H, W)

    Raises
    ------
    InputError
        If arguments don't fit together.

    Examples
    --------
    >>> import numpy as np
    >>> w, dy = np.ones((4, 3, 3, 3), np.float32), np.ones((2, 4, 8, 8), np.float32)
    >>> dx = conv2d_input((2, 3, 8, 8), w, dy, padding=1)
    >>> dx.shape, float(dx[0, 0, 0, 0])
    ((2, 3, 8, 8), 16.0)
    """
    geometry = Geometry(2, stride, padding, dilation, groups)
    return _conv_input(geometry, input_size, weight, grad_output, Asked(**options))


def conv3d_input(
    input_size: Sequence[int],
    weight: Any,
    grad_output: Any,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    **options: Unpack[Options],
) -> Any:
    """Compute the gradient of `conv3d` by its input; as `conv2d_input`.

    Examples
    --------
    >>> import numpy as np
    >>> w, dy = np.ones((4, 3, 1, 3, 3), np.float32), np.ones((2, 4, 2, 6, 6), np.float32)
    >>> conv3d_input((2, 3, 2, 8, 8), w, dy).shape
    (2, 3, 2, 8, 8)
    """
    geometry = Geometry(3, stride, padding, dilation, groups)
    return _conv_input(geometry, input_size, weight, grad_output, Asked(**options))


def conv1d_weight(
    input: Any,
    weight_size: Sequence[int],
    grad_output: Any,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    **options: Unpack[Options],
) -> Any:
    """Compute the gradient of `conv1d` by its weights; as `conv2d_weight`.

    Examples
    --------
    >>> import numpy as np
    >>> x, dy = np.ones((2, 3, 16), np.float32), np.ones((2, 4, 12), np.float32)
    >>> conv1d_weight(x, (4, 3, 5), dy).shape
    (4, 3, 5)
    """
    geometry = Geometry(1, stride, padding, dilation, groups)
    return _conv_weight(geometry, input, weight_size, grad_output, Asked(**options))


def conv2d_weight(
    input: Any,
    weight_size: Sequence[int],
    grad_output: Any,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    **options: Unpack[Options],
) -> Any:
    """Compute the gradient of `conv2d` by its weights, as `torch.nn.grad.conv2d_weight` does.

    The gradient by the bias is the sum of ``grad_output`` over all axes but the channels'.

    Parameters
    ----------
    input : array
        (N, C, H, W)
    weight_size : sequence of int
        Shape of the weights, (K, C / groups, height, width).
    grad_output : array
        Gradient by the output, (N, K, height, width).
    stride, padding, dilation, groups
        As given to `conv2d`.
    **options
        As for `conv2d`.

    Returns
    -------
    array
        (K, C / groups, height, width)

    Raises
    ------
    InputError
        If arguments don't fit together.

    Examples
    --------
    >>> import numpy as np
    >>> x, dy = np.ones((2, 3, 8, 8), np.float32), np.ones((2, 4, 8, 8), np.float32)
    >>> dw = conv2d_weight(x, (4, 3, 3, 3), dy, padding=1)
    >>> dw.shape, float(dw[0, 0, 1, 1])
    ((4, 3, 3, 3), 128.0)
    """
    geometry = Geometry(2, stride, padding, dilation, groups)
    return _conv_weight(geometry, input, weight_size, grad_output, Asked(**options))


def conv3d_weight(
    input: Any,
    weight_size: Sequence[int],
    grad_output: Any,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    **options: Unpack[Options],
) -> Any:
    """Compute the gradient of `conv3d` by its weights; as `conv2d_weight`.

    Examples
    --------
    >>> import numpy as np
    >>> x, dy = np.ones((2, 3, 2, 8, 8), np.float32), np.ones((2, 4, 2, 6, 6), np.float32)
    >>> conv3d_weight(x, (4, 3, 1, 3, 3), dy).shape
    (4, 3, 1, 3, 3)
    """
    geometry = Geometry(3, stride, padding, dilation, groups)
    return _conv_weight(geometry, input, weight_size, grad_output, Asked(**options))


def _conv(geometry: Geometry, x: Any, w: Any, bias: Any, asked: Asked) -> Any:
    return _with_bias(geometry, x, w, bias, asked, forward, FORWARD)


def _conv_transpose(geometry: Geometry, x: Any, w: Any, bias: Any, asked: Asked) -> Any:
    return _with_bias(geometry, x, w, bias, asked, transposed, TRANSPOSED)


def _with_bias(
    geometry: Geometry,
    x: Any,
    w: Any,
    bias: Any,
    asked: Asked,
    read: Any,
    tensors: MappingProxyType[str, str],
) -> Any:
    geometry = geometry._replace(layout=asked.layout)
    is_one = _axes(x, "x") == geometry.ndim + 1
    inputs = {
        "x": logical(geometry, x[None] if is_one else x, "x"),
        "w": logical(geometry, w, "w"),
    }
    forms = {name: form_of(array, name) for name, array in inputs.items()}
    bias_form = None if bias is None else form_of(bias, "bias")
    call = read(geometry, forms["x"], forms["w"], bias_form)
    arrays = {
        name: (inputs[known], forms[known]) for name, known in tensors.items() if known != "out"
    }
    return _answer(geometry, call, arrays, tensors, asked, bias, is_one)


def _conv_input(
    geometry: Geometry, input_size: Sequence[int], weight: Any, grad_output: Any, asked: Asked
) -> Any:
    geometry = geometry._replace(layout=asked.layout)
    w = logical(geometry, weight, "weight")
    y = logical(geometry, grad_output, "grad_output")
    w_form, y_form = form_of(w, "weight"), form_of(y, "grad_output")
    call = input_gradient(geometry, input_size, w_form, y_form)
    return _answer(geometry, call, {"y": (y, y_form), "w": (w, w_form)}, INPUT_GRADIENT, asked)


def _conv_weight(
    geometry: Geometry, input: Any, weight_size: Sequence[int], grad_output: Any, asked: Asked
) -> Any:
    geometry = geometry._replace(layout=asked.layout)
    x = logical(geometry, input, "input")
    y = logical(geometry, grad_output, "grad_output")
    x_form, y_form = form_of(x, "input"), form_of(y, "grad_output")
    call = weight_gradient(geometry, x_form, weight_size, y_form)
    return _answer(geometry, call, {"x": (x, x_form), "y": (y, y_form)}, WEIGHT_GRADIENT, asked)


def _answer(
    geometry: Geometry,
    call: ConvCall,
    arrays: dict[str, tuple[Any, Form]],
    names: MappingProxyType[str, str],
    asked: Asked,
    bias: Any = None,
    is_one: bool = False,
) -> Any:
    out = asked.out
    if out is not None:
        if _axes(out, "out") == geometry.ndim + 1 and is_one:
            out = out[None]
        out = logical(geometry, out, "out")
    made = run(call, arrays, names, asked, bias=bias, out=out)
    if asked.out is not None:
        return asked.out
    if geometry.ndim == 1:
        made = made[:, :, 0, :]
    if layout_of(geometry):
        made = permuted(made, (0, *range(2, geometry.ndim + 2), 1))
    return made[0] if is_one else made


def _axes(array: Any, name: str) -> int:
    if not hasattr(array, "shape"):
        place_of(array, name)  # says that it is no array
    return len(array.shape)


def logical(geometry: Geometry, array: Any, name: str) -> Any:
    """View an array by the axes N, C and two or three spatial ones.

    Examples
    --------
    >>> import numpy as np
    >>> logical(Geometry(1, layout="NLC"), np.zeros((2, 8, 3)), "x").shape
    (2, 3, 1, 8)
    """
    axes = geometry.ndim + 2
    if _axes(array, name) != axes:
        layout = geometry.layout or LAYOUTS[geometry.ndim][0]
        raise InputError(
            f"expected {axes} axes ({', '.join(layout)}), got {len(array.shape)}: shape "
            f"{tuple(array.shape)}",
            name,
        )
    if layout_of(geometry):
        array = permuted(array, (0, axes - 1, *range(1, axes - 1)))
    return array[:, :, None, :] if geometry.ndim == 1 else array
