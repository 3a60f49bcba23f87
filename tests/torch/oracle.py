"""What PyTorch really runs on the CPU, as its profiler and module hooks see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.driver import parse_driver_line

_OPERATIONS = {"FP32": "conv", "FP16": "convfp16", "BF16": "convbfp16"}


def convolutions(run: Callable[[], object], dtype: str = "FP32") -> Counter[ConvProblem]:
    """Convolutions of a real run, each told as a driver line and read from that."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        run()
    found: Counter[ConvProblem] = Counter()
    for event in recorded.events() or ():
        values = event.concrete_inputs
        if event.name == "aten::convolution":
            x, w = event.input_shapes[:2]
            found.update(_problems(x, w, values[3:9], 1, dtype))
        elif event.name == "aten::convolution_backward":
            x, w = event.input_shapes[1:3]
            bits = 2 * values[10][0] + 4 * values[10][1]
            if bits:
                found.update(_problems(x, w, values[4:10], bits, dtype))
    return found


def _problems(
    x: list[int], w: list[int], params: Sequence[Any], bits: int, dtype: str
) -> list[ConvProblem]:
    step, pad, dil, transposed, extra, groups = params
    if groups > 1 and any(n != 1 for n in dil):
        return []  # PyTorch has kernels of its own for these.
    size, fil = x[2:], w[2:]
    if len(size) == 1:
        size, fil, step, pad, dil, extra = (
            [1, *size],
            [1, *fil],
            [1, *step],
            [0, *pad],
            [1, *dil],
            [0, *extra],
        )
    axes = "dhw"[-len(size) :]
    words = [f"MIOpenDriver {_OPERATIONS[dtype]} --spatial_dim {len(size)} -F {bits} -g {groups}"]
    words.append(f"-n {x[0]} -c {x[1]} -k {w[1] * groups if transposed else w[0]}")
    for name, numbers in (
        ("in", size),
        ("fil", fil),
        ("conv_stride", step),
        ("pad", pad),
        ("dilation", dil),
        *([("trans_output_pad", extra)] if transposed else []),
    ):
        spread = numbers * len(axes) if len(numbers) == 1 else numbers
        words += [f"--{name}_{axis} {number}" for axis, number in zip(axes, spread, strict=True)]
    words.append(f"-m {'trans' if transposed else 'conv'}")
    return parse_driver_line(" ".join(words))


def layouts(
    model: nn.Module, arguments: Sequence[Tensor]
) -> Counter[tuple[tuple[int, ...], tuple[int, ...], str]]:
    """Shapes of x and y of each 2-D or 3-D convolution module, and the layout of its tensors."""
    found: Counter[tuple[tuple[int, ...], tuple[int, ...], str]] = Counter()

    def note(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        tensors = (inputs[0], module.weight, output)
        plain = all(tensor.is_contiguous() for tensor in tensors)
        last = torch.channels_last if output.ndim == 4 else torch.channels_last_3d
        assert plain or all(tensor.is_contiguous(memory_format=last) for tensor in tensors)
        names = ("NCHW", "NHWC") if output.ndim == 4 else ("NCDHW", "NDHWC")
        found[tuple(inputs[0].shape), tuple(output.shape), names[not plain]] += 1

    handles = [
        module.register_forward_hook(note)
        for module in model.modules()
        if isinstance(module, nn.Conv2d | nn.Conv3d)
    ]
    model(*arguments)
    for handle in handles:
        handle.remove()
    return found
