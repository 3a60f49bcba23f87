"""Runs a model on tensors that have shapes and no values."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensor, FakeTensorMode

from foretune.kernels.conv.problem import ConvProblem
from foretune.torch.recorder import ConvRecorder

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass(frozen=True)
class Trace:
    """The convolutions of a model.

    Parameters
    ----------
    counts : dict of ConvProblem to int
        What PyTorch asks MIOpen for, and how often, in the order of first appearance.
    native : dict of str to int
        Convolutions that PyTorch computes with kernels of its own, by the reason.

    Examples
    --------
    >>> trace(torch.nn.Conv2d(8, 8, 3, groups=8, dilation=2), [(1, 8, 9, 9)]).native
    {'groups with dilation': 1}
    """

    counts: dict[ConvProblem, int]
    native: dict[str, int]


def capture(
    model: Callable[..., Any],
    *inputs: Any,
    backward: bool = True,
    dtype: torch.dtype | None = None,
    channels_last: bool = False,
    autocast: torch.dtype | None = None,
) -> dict[ConvProblem, int]:
    """Find the convolutions that PyTorch asks MIOpen for, without a GPU and computing nothing.

    The model runs on tensors without values, once for each of ``inputs``; it isn't changed, and
    needs no weights. What MIOpen isn't asked for is left out: double precision, groups with
    dilation. A bias is added by an operation of its own.

    Parameters
    ----------
    model : torch.nn.Module or callable
        In the mode (training or evaluation) that it is in.
    *inputs
        For each run its input: a tensor, a shape such as ``(1, 3, 224, 224)``, a tuple of several
        of them for several arguments, or a dict of named ones. Anything else in the tuple or dict
        is handed over as it is.
    backward : bool, default True
        Also the gradients that training needs. The gradient of an input that asks for none isn't
        computed, so the first layer has no backward data.
    dtype : torch.dtype, optional
        Converts parameters and inputs of floating point. Default: the model's.
    channels_last : bool, default False
        Converts model and inputs to channels-last. As in PyTorch, MIOpen is asked for NHWC only if
        the environment variable ``PYTORCH_MIOPEN_SUGGEST_NHWC`` is 1.
    autocast : torch.dtype, optional
        Runs under autocast in this type.

    Returns
    -------
    dict of ConvProblem to int
        How often each is asked for, in the order of first appearance.

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ConvTranspose2d(8, 4, 2))
    >>> [problem.direction for problem in capture(model, (2, 3, 9, 9), (4, 3, 9, 9))]
    ['F', 'B', 'F', 'W', 'W', 'F', 'B', 'F', 'W', 'W']
    """
    return trace(
        model,
        inputs,
        backward=backward,
        dtype=dtype,
        channels_last=channels_last,
        autocast=autocast,
    ).counts


def trace(
    model: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    backward: bool = False,
    dtype: torch.dtype | None = None,
    channels_last: bool = False,
    autocast: torch.dtype | None = None,
) -> Trace:
    """Do what `capture` does, and also say what PyTorch computes itself.

    Parameters
    ----------
    model, backward, dtype, channels_last, autocast
        As for `capture`.
    inputs : sequence
        As those of `capture`.

    Returns
    -------
    Trace
        What MIOpen is asked for, and what not.

    Examples
    --------
    >>> trace(torch.nn.Conv2d(3, 8, 3).double(), [(1, 3, 9, 9)]).native
    {'float64': 1}
    """
    mode = _mode_of(model)
    if mode is None:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        if isinstance(model, torch.nn.Module):
            with FakeCopyMode(mode):
                # Of a compiled model, the one that was compiled.
                model = copy.deepcopy(getattr(model, "_orig_mod", model))
    recorder = ConvRecorder(suggest_nhwc=os.environ.get("PYTORCH_MIOPEN_SUGGEST_NHWC") == "1")
    with mode:
        device, own = torch.device("cpu"), torch.get_default_dtype()
        if isinstance(model, torch.nn.Module):
            if dtype is not None or channels_last:
                _convert(model, dtype, channels_last)
            device, own = _kind_of(model, device, own)
        inputs_of = _Inputs(device, dtype or own, dtype, channels_last)
        for run in inputs:
            values = inputs_of.run(run)
            cast = torch.autocast("cpu", autocast) if autocast else nullcontext()
            with recorder, torch.set_grad_enabled(backward):
                with cast:
                    output = model(**values) if isinstance(values, dict) else model(*values)
                if backward:
                    _backward(output)
    return Trace(dict(recorder.counts), dict(recorder.native))


def _mode_of(model: Callable[..., Any]) -> FakeTensorMode | None:
    """Mode of a model that was built of tensors without values."""
    if not isinstance(model, torch.nn.Module):
        return None
    return next((p.fake_mode for p in model.parameters() if isinstance(p, FakeTensor)), None)


def _convert(model: torch.nn.Module, dtype: torch.dtype | None, channels_last: bool) -> None:
    # Module.to can't: it swaps tensors, which old weight norm holds on to.
    made: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is None:
                continue
            if id(tensor) not in made:
                made[id(tensor)] = _converted(tensor, dtype, channels_last)
            setattr(module, name, made[id(tensor)])


def _converted(
    tensor: torch.Tensor, dtype: torch.dtype | None, channels_last: bool
) -> torch.Tensor:
    new = tensor.detach()
    if dtype is not None and new.is_floating_point():
        new = new.to(dtype)
    if channels_last and new.ndim in _CHANNELS_LAST:
        new = new.to(memory_format=_CHANNELS_LAST[new.ndim])
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(new, requires_grad=tensor.requires_grad)
    return new


def _kind_of(
    model: torch.nn.Module, device: torch.device, dtype: torch.dtype
) -> tuple[torch.device, torch.dtype]:
    """Device and type of the model's parameters, or what is given if it has none."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            return parameter.device, parameter.dtype
    return device, dtype


@dataclass(frozen=True)
class _Inputs:
    """Makes the arguments of a run."""

    device: torch.device
    dtype: torch.dtype
    converted: torch.dtype | None
    channels_last: bool

    def run(self, given: Any) -> tuple[Any, ...] | dict[str, Any]:
        if isinstance(given, dict):
            return {name: self._value(value) for name, value in given.items()}
        if isinstance(given, tuple) and not _is_shape(given):
            return tuple(map(self._value, given))
        return (self._value(given),)

    def _value(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            made = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device=self.device
            )
            new = _converted(made, self.converted, self.channels_last)
            return new.requires_grad_(value.requires_grad)
        if _is_shape(value):
            made = torch.empty(value, dtype=self.dtype, device=self.device)
            return _converted(made, None, self.channels_last)
        return value


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(type(n) is int for n in value)


def _backward(output: Any) -> None:
    outputs = [tensor for tensor in _tensors(output) if tensor.requires_grad]
    if not outputs:
        raise ValueError("no output of the model needs a gradient; run it with backward=False")
    torch.autograd.backward(outputs, [torch.empty_like(tensor) for tensor in outputs])


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    """Give each tensor of a model's output, whatever holds it."""
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, list | tuple):
        for value in output:
            yield from _tensors(value)
    elif is_dataclass(output):
        for field in fields(output):
            yield from _tensors(getattr(output, field.name))
