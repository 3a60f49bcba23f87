"""Convolutions in float64 by their definition, independent of everything that is tested."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.kernels.conv.problem import ConvProblem

Array = npt.NDArray[np.float64]


def convolve(problem: ConvProblem, inputs: dict[str, Any]) -> Array:
    """Compute a problem's output from its two inputs, all in logical order (N, C, spatial)."""
    groups = problem.groups
    shapes = {
        "x": (problem.batch, problem.in_channels, *problem.in_size),
        "w": (problem.out_channels, problem.in_channels // groups, *problem.filter_size),
        "y": (problem.batch, problem.out_channels, *problem.out_size),
    }
    full = {
        name: np.asarray(inputs[name], np.float64) if name in inputs else np.zeros(shape)
        for name, shape in shapes.items()
    }
    # Enough zeros around x that every filter place reads inside it.
    before = problem.padding
    after = [
        max(0, (out - 1) * step + (size - 1) * dilation + 1 - pad - real)
        for out, step, size, dilation, pad, real in zip(
            problem.out_size,
            problem.stride,
            problem.filter_size,
            problem.dilation,
            problem.padding,
            problem.in_size,
            strict=True,
        )
    ]
    padded = np.pad(full["x"], [(0, 0), (0, 0), *zip(before, after, strict=True)])
    x = padded.reshape(problem.batch, groups, -1, *padded.shape[2:])
    w = full["w"].reshape(groups, -1, *shapes["w"][1:])
    y = full["y"].reshape(problem.batch, groups, -1, *problem.out_size)
    for place in product(*map(range, problem.filter_size)):
        window = tuple(
            slice(at * dilation, at * dilation + (out - 1) * step + 1, step)
            for at, dilation, out, step in zip(
                place, problem.dilation, problem.out_size, problem.stride, strict=True
            )
        )
        x_at: Any = (..., *window)
        w_at: Any = (..., *place)
        if problem.direction == "F":
            y += np.einsum("ngc...,gkc->ngk...", x[x_at], w[w_at])
        elif problem.direction == "B":
            x[x_at] += np.einsum("ngk...,gkc->ngc...", y, w[w_at])
        else:
            flat = (problem.batch, groups, -1, int(np.prod(problem.out_size)))
            w[w_at] = np.einsum("ngks,ngcs->gkc", y.reshape(flat), x[x_at].reshape(flat))
    if problem.direction == "F":
        return y.reshape(shapes["y"])
    if problem.direction == "W":
        return w.reshape(shapes["w"])
    inside: Any = tuple(
        slice(pad, pad + size) for pad, size in zip(before, problem.in_size, strict=True)
    )
    result: Array = x.reshape(*shapes["x"][:2], *padded.shape[2:])[(..., *inside)]
    return result
