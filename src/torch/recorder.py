"""Which convolutions PyTorch's ROCm build hands to MIOpen, as it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from foretune.kernels.conv.problem import ConvProblem

#: MIOpen's names of the types that PyTorch hands to it; others have kernels of PyTorch's own.
DTYPES = MappingProxyType(
    {torch.float32: "FP32", torch.float16: "FP16", torch.bfloat16: "BF16"},
)
_CHANNELS_LAST = MappingProxyType({4: torch.channels_last, 5: torch.channels_last_3d})
_LAYOUTS = MappingProxyType({4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")})


class ConvRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the convolutions that run while it is active.

    Parameters
    ----------
    suggest_nhwc : bool
        Whether channels-last tensors reach MIOpen as such (``PYTORCH_MIOPEN_SUGGEST_NHWC``).

    Attributes
    ----------
    counts : Counter of ConvProblem
        What MIOpen is asked for.
    native : Counter of str
        What PyTorch's own kernels compute, by the reason.

    Examples
    --------
    >>> with ConvRecorder(suggest_nhwc=False) as recorder, torch.no_grad():
    ...     _ = torch.nn.Conv1d(4, 6, 3)(torch.zeros(2, 4, 10))
    >>> next(iter(recorder.counts)).in_size
    (1, 10)
    """

    def __init__(self, suggest_nhwc: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.suggest_nhwc = suggest_nhwc
        self.counts: Counter[ConvProblem] = Counter()
        self.native: Counter[str] = Counter()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Note a convolution before it runs."""
        if func is torch.ops.aten.convolution.default:
            x, w, _, *params = args
            call = _Call.of(x, w, *params, suggest_nhwc=self.suggest_nhwc)
            self._note(call, (("B" if call.transposed else "F"),))
            # Where it may be channels-last, MIOpen decides, not the kernel that runs here.
            y = func(*args, **(kwargs or {}))
            return y.to(memory_format=call.memory_format)
        if func is torch.ops.aten.convolution_backward.default:
            _, x, w, _, *params, wanted = args
            call = _Call.of(x, w, *params, suggest_nhwc=self.suggest_nhwc)
            directions = ("F" if call.transposed else "B", "W")
            # The third that may be wanted is the bias's.
            pairs = zip(directions, wanted[:2], strict=True)
            self._note(call, tuple(name for name, is_wanted in pairs if is_wanted))
        return func(*args, **(kwargs or {}))

    def _note(self, call: _Call, directions: tuple[str, ...]) -> None:
        reason = call.native_reason()
        if reason:
            self.native[reason] += len(directions)
        else:
            self.counts.update(call.problem(direction) for direction in directions)


@dataclass(frozen=True)
class _Call:
    """One call of ATen's convolution or its gradients, in two or three dimensions."""

    in_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int
    dtype: torch.dtype
    memory_format: torch.memory_format

    @classmethod
    def of(
        cls,
        x: torch.Tensor,
        w: torch.Tensor,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        transposed: bool,
        output_padding: Sequence[int],
        groups: int,
        *,
        suggest_nhwc: bool,
    ) -> _Call:
        ndim = w.ndim - 2
        # One number may stand for all dimensions.
        spread = [
            tuple(map(int, sizes)) * (ndim if len(sizes) == 1 else 1)
            for sizes in (stride, padding, dilation, output_padding)
        ]
        in_shape, weight_shape = tuple(map(int, x.shape)), tuple(map(int, w.shape))
        memory_format = torch.contiguous_format
        if ndim == 1:
            # As ATen does: a height of 1, and never channels-last.
            in_shape = (*in_shape[:2], 1, *in_shape[2:])
            weight_shape = (*weight_shape[:2], 1, *weight_shape[2:])
            spread = [(one, *sizes) for one, sizes in zip((1, 0, 1, 0), spread, strict=True)]
        elif suggest_nhwc and x.dtype != torch.float64 and (_is_nhwc(x) or _is_nhwc(w)):
            memory_format = _CHANNELS_LAST[w.ndim]
        return cls(
            in_shape,
            weight_shape,
            spread[0],
            spread[1],
            spread[2],
            transposed,
            spread[3],
            int(groups),
            x.dtype,
            memory_format,
        )

    def native_reason(self) -> str:
        """Why PyTorch computes it itself; "" if MIOpen does."""
        if not torch.backends.cudnn.enabled:
            return "torch.backends.cudnn.enabled is off"
        if self.dtype not in DTYPES:
            return str(self.dtype).removeprefix("torch.")
        if 0 in self.in_shape:
            return "empty tensors"
        if self.groups > 1 and set(self.dilation) != {1}:
            return "groups with dilation"
        # PyTorch allows it where the dilation is larger; no convolution has that transpose.
        if self.transposed and any(
            extra >= step for extra, step in zip(self.output_padding, self.stride, strict=True)
        ):
            return "output padding of a whole stride"
        return ""

    def problem(self, direction: str) -> ConvProblem:
        """Give the physical convolution; a transposed one takes its y and gives its x."""
        batch, channels, *size = self.in_shape
        first, second, *filter_size = self.weight_shape
        in_size, in_channels, out_channels = tuple(size), channels, first
        if self.transposed:
            in_channels, out_channels = second * self.groups, channels
            in_size = tuple(
                (n - 1) * step - 2 * pad + dil * (fil - 1) + extra + 1
                for n, fil, step, pad, dil, extra in zip(
                    size,
                    filter_size,
                    self.stride,
                    self.padding,
                    self.dilation,
                    self.output_padding,
                    strict=True,
                )
            )
        plain = ConvProblem(
            direction,
            batch,
            in_channels,
            in_size,
            out_channels,
            tuple(filter_size),
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            DTYPES[self.dtype],
        )
        if self.memory_format == torch.contiguous_format or _looks_nchw(plain):
            return plain
        layout = _LAYOUTS[len(self.in_shape)][1]
        fields = {"layout": layout, "weight_layout": layout, "out_layout": layout}
        return ConvProblem(**(vars(plain) | fields))


def _is_nhwc(tensor: torch.Tensor) -> bool:
    """Whether ATen takes a tensor for channels-last, going by its strides."""
    if tensor.ndim not in _CHANNELS_LAST:
        return False
    least = 0
    for axis in (1, *range(tensor.ndim - 1, 1, -1), 0):
        size, step = tensor.shape[axis], tensor.stride(axis)
        if size == 0 or step < least:
            return False
        # One channel, or one pixel of a contiguous tensor: both at once, and not taken for it.
        if axis == 0 and least == tensor.stride(1):
            return False
        least = step * size if size > 1 else step
    return True


def _looks_nchw(problem: ConvProblem) -> bool:
    """Whether MIOpen can't tell channels-last from the usual layout; it then takes the usual."""
    return all(
        channels == 1 or set(size) == {1}
        for channels, size in (
            (problem.in_channels, problem.in_size),
            (problem.in_channels // problem.groups, problem.filter_size),
            (problem.out_channels, problem.out_size),
        )
    )
