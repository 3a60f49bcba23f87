"""The convolutions of an ONNX file, by the shapes that ONNX infers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import onnx
import onnx.inliner
import onnx.shape_inference

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.model_inputs import InputShape, parse_input

_DTYPES: Mapping[int, str] = MappingProxyType(
    {
        onnx.TensorProto.FLOAT: "FP32",
        onnx.TensorProto.FLOAT16: "FP16",
        onnx.TensorProto.BFLOAT16: "BF16",
    }
)
_DIRECTIONS = MappingProxyType({"Conv": "F", "ConvTranspose": "B"})
#: Convolutions whose types MIOpen's databases don't know.
_QUANTISED = frozenset({"ConvInteger", "QLinearConv"})


@dataclass
class OnnxConvolutions:
    """What an ONNX file holds.

    Parameters
    ----------
    counts : Counter of ConvProblem, optional
        How often each convolution is asked for.
    left_out : Counter of str, optional
        Convolutions that MIOpen has no words for, by the reason.

    Examples
    --------
    >>> OnnxConvolutions().counts
    Counter()
    """

    counts: Counter[ConvProblem] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)


def read_onnx(path: str | os.PathLike[str], inputs: Sequence[str] = ()) -> OnnxConvolutions:
    """Find the convolutions of an ONNX file.

    Only the graph is read: weights that are kept beside the file aren't needed. Both branches of a
    condition count, and the body of a loop counts once. A 1-D convolution gets a height of 1, as
    PyTorch gives it.

    Parameters
    ----------
    path : path-like
        The file.
    inputs : sequence of str, optional
        For each run the shapes of its inputs, as `foretune.miopen.model_inputs.parse_input` reads
        them; without names they are in the file's order. Needed if the file leaves sizes open.

    Returns
    -------
    OnnxConvolutions
        Problems with counts, and what was left out.

    Raises
    ------
    InputError
        If it is no ONNX file, or a size that matters is unknown.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> graph = onnx.parser.parse_graph(
    ...     "g (float[1, 3, 9, 9] x, float[8, 3, 3, 3] w) => (float[1, 8, 7, 7] y)"
    ...     "{ y = Conv(x, w) }"
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "a.onnx")
    ...     onnx.save(onnx.helper.make_model(graph), file)
    ...     [problem.out_size for problem in read_onnx(file).counts]
    [(7, 7)]
    """
    name = os.fspath(path)
    found = OnnxConvolutions()
    for run in [parse_input(text) for text in inputs] or [[]]:
        model = _load(name)
        _set_inputs(model.graph, run, name)
        try:
            model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
            message = " ".join(str(error).split())
            raise InputError(f"its shapes can't be inferred: {message:.400}", name) from None
        for problem in _problems(model.graph, {}, name, found.left_out, _open_sizes(model.graph)):
            found.counts[problem] += 1
    return found


def _load(name: str) -> onnx.ModelProto:
    try:
        model = onnx.load(name, load_external_data=False)
    except FileNotFoundError:
        raise InputError("there is no such file", name) from None
    except OSError as error:
        raise InputError(f"can't be opened: {error.strerror}", name) from None
    except Exception as error:
        raise InputError(f"this is no ONNX file ({' '.join(str(error).split())})", name) from None
    if not model.graph.node:
        raise InputError("this is no ONNX file: it has no graph", name)
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def _inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Give what a run has to give; old files list weights there too."""
    weights = {weight.name for weight in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def _set_inputs(graph: onnx.GraphProto, run: list[InputShape], name: str) -> None:
    if not run:
        return
    values = _inputs(graph)
    by_name = {value.name: value for value in values}
    known = ", ".join(by_name)
    if len(run) > len(values):
        raise InputError(f"it has {len(values)} inputs ({known}), got {len(run)}", name)
    for position, tensor in enumerate(run):
        if tensor.name and tensor.name not in by_name:
            raise InputError(f"it has no input {tensor.name!r}; it has {known}", name)
        value = by_name[tensor.name] if tensor.name else values[position]
        _set_shape(value, tensor.sizes, name)
    # They may hold names of the sizes that are now numbers; inference finds them anew.
    del graph.value_info[:]
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")


def _set_shape(value: onnx.ValueInfoProto, sizes: tuple[int, ...], name: str) -> None:
    shape = value.type.tensor_type.shape
    old = _shape(value)
    if value.type.tensor_type.HasField("shape") and (
        len(old) != len(sizes)
        or any(isinstance(size, int) and size != new for size, new in zip(old, sizes, strict=True))
    ):
        raise InputError(
            f"its input {value.name!r} is {_x(old)}, which {_x(sizes)} doesn't fit", name
        )
    del shape.dim[:]
    for size in sizes:
        shape.dim.add().dim_value = size


def _shape(value: onnx.ValueInfoProto) -> tuple[int | str, ...]:
    """Sizes of a tensor; names, or "?", where they are open."""
    return tuple(
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or "?"
        for dim in value.type.tensor_type.shape.dim
    )


def _open_sizes(graph: onnx.GraphProto) -> str:
    """Say which sizes of the inputs are open, and how to set them; "" if none is."""
    values = [value for value in _inputs(graph) if not all(type(n) is int for n in _shape(value))]
    if not values:
        return ""
    sizes = ", ".join(
        f"{size!r} of the input {value.name!r}"
        for value in values
        for size in _shape(value)
        if type(size) is not int
    )
    example = ",".join(
        f"{value.name}={_x([n if type(n) is int else f'<{n}>' for n in _shape(value)])}"
        for value in values
    )
    return f"no number is given for {sizes}; give all as --input {example}"


@dataclass(frozen=True)
class _Tensor:
    shape: tuple[int | str, ...]
    dtype: int

    @property
    def is_known(self) -> bool:
        return len(self.shape) > 2 and all(type(size) is int for size in self.shape)


def _tensors(graph: onnx.GraphProto) -> Iterator[tuple[str, _Tensor]]:
    for weight in graph.initializer:
        yield weight.name, _Tensor(tuple(weight.dims), weight.data_type)
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.HasField("tensor_type"):
            yield value.name, _Tensor(_shape(value), value.type.tensor_type.elem_type)


def _problems(
    graph: onnx.GraphProto,
    outer: Mapping[str, _Tensor],
    name: str,
    left_out: Counter[str],
    open_sizes: str,
) -> Iterator[ConvProblem]:
    tensors = {**outer, **dict(_tensors(graph))}
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _problems(inner, tensors, name, left_out, open_sizes)
        if node.domain not in ("", "ai.onnx"):
            continue
        if node.op_type in _QUANTISED:
            left_out[node.op_type] += 1
        elif node.op_type in _DIRECTIONS:
            where = f"{name}, {node.op_type} {node.name or node.output[0]!r}"
            known = [tensors.get(one) for one in (*node.input[:2], node.output[0])]
            x, w, y = known
            if not (x and w and y and x.is_known and w.is_known and y.is_known):
                raise InputError(open_sizes or "ONNX can't infer the shapes of its tensors", where)
            problem, reason = _problem(node, x, w, y, where)
            if problem:
                yield problem
            else:
                left_out[reason] += 1


def _problem(
    node: onnx.NodeProto, x: _Tensor, w: _Tensor, y: _Tensor, where: str
) -> tuple[ConvProblem | None, str]:
    """Problem of a node, or why MIOpen has no word for it."""
    dtype = _DTYPES.get(x.dtype)
    if dtype is None:
        return None, onnx.TensorProto.DataType.Name(x.dtype).lower()
    values: dict[str, Any] = {
        attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute
    }
    groups = values.get("group", 1)
    # The physical convolution: a transposed one takes its y and gives its x.
    transposed = node.op_type == "ConvTranspose"
    given, result = (y, x) if transposed else (x, y)
    in_size, filter_size, out_size = (_numbers(tensor)[2:] for tensor in (given, w, result))
    ndim = len(filter_size)
    stride = tuple(values.get("strides", (1,) * ndim))
    dilation = tuple(values.get("dilations", (1,) * ndim))
    padding = _padding(values, in_size, filter_size, out_size, stride, dilation)
    if padding is None:
        return None, "padding that differs on the two sides"
    if ndim == 1:
        in_size, filter_size, stride, dilation = (
            (1, *sizes) for sizes in (in_size, filter_size, stride, dilation)
        )
        padding = (0, *padding)
    elif ndim > 3:
        return None, f"{ndim} dimensions"
    weight = _numbers(w)
    expected = weight[0] if transposed else weight[1] * groups
    if x.shape[1] != expected:
        raise InputError(f"it has {x.shape[1]} channels, and its filter is for {expected}", where)
    try:
        problem = ConvProblem(
            _DIRECTIONS[node.op_type],
            _numbers(x)[0],
            weight[1] * groups,
            in_size,
            weight[0],
            filter_size,
            stride,
            padding,
            dilation,
            groups,
            dtype,
        )
    except InputError as error:
        raise InputError(str(error), where) from None
    if problem.out_size[-len(out_size) :] != out_size:
        return None, "output padding of a whole stride"
    return problem, ""


def _numbers(tensor: _Tensor) -> tuple[int, ...]:
    return tuple(size for size in tensor.shape if isinstance(size, int))


def _padding(
    values: dict[str, Any],
    in_size: tuple[int, ...],
    filter_size: tuple[int, ...],
    out_size: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[int, ...] | None:
    """Give the padding of each dimension; none if its two sides differ."""
    ndim = len(filter_size)
    auto = values.get("auto_pad", b"NOTSET")
    if auto == b"VALID":
        return (0,) * ndim
    if auto == b"NOTSET" and "output_shape" not in values:
        pads = tuple(values.get("pads", (0,) * 2 * ndim))
        return pads[:ndim] if pads[:ndim] == pads[ndim:] else None
    padding = []
    more = values.get("output_padding", (0,) * ndim)
    for n, fil, out, step, dil, extra in zip(
        in_size, filter_size, out_size, stride, dilation, more, strict=True
    ):
        both = max(0, (out - 1) * step + dil * (fil - 1) + 1 + extra - n)
        if both % 2:
            return None
        padding.append(both // 2)
    return tuple(padding)


def _x(sizes: Sequence[int | str]) -> str:
    return "x".join(map(str, sizes))
