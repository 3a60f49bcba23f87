"""PyTorch: differentiable convolutions on foretune's kernels, and what models ask MIOpen for.

>>> import torch
>>> x, w = torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3, requires_grad=True)
>>> conv2d(x, w, padding=1).sum().backward()
>>> w.grad.shape
torch.Size([4, 3, 3, 3])

The convolutions that a model asks MIOpen for are found without a GPU:

>>> problems = capture(torch.nn.Conv2d(3, 8, 3), (1, 3, 32, 32), backward=False)
>>> [(problem.direction, problem.out_size, count) for problem, count in problems.items()]
[('F', (30, 30), 1)]
"""

from __future__ import annotations

from foretune.torch.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from foretune.torch.modules import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvolutionMode,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    give_back,
    use,
)
from foretune.torch.trace import Trace, capture, trace

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "ConvolutionMode",
    "Trace",
    "capture",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "give_back",
    "trace",
    "use",
]
