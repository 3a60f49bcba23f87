"""The convolutions that a PyTorch model asks MIOpen for, found without a GPU.

>>> import torch
>>> problems = capture(torch.nn.Conv2d(3, 8, 3), (1, 3, 32, 32), backward=False)
>>> [(problem.direction, problem.out_size, count) for problem, count in problems.items()]
[('F', (30, 30), 1)]
"""

from __future__ import annotations

from foretune.torch.trace import Trace, capture, trace

__all__ = ["Trace", "capture", "trace"]
