"""What a convolution is like, in a few words."""

from __future__ import annotations

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.devices import DeviceFacts
from foretune.predictor.features.conv import FEATURE_NAMES, features_of_raw, raw_numbers

_DIRECTIONS = {"F": "forward", "B": "backward data", "W": "backward weights"}


def conv_in_words(problem: ConvProblem, device: DeviceFacts | None = None) -> dict[str, str]:
    """Say what a convolution is like: name -> text.

    Parameters
    ----------
    problem : ConvProblem
    device : DeviceFacts, optional
        With it, what the model goes by: the GEMM that it comes to, its work and its least time.

    Examples
    --------
    >>> conv_in_words(ConvProblem("F", 32, 64, (56, 56), 128, (1, 1)))["channels"]
    '64 to 128'
    """
    words = {
        "direction": _DIRECTIONS[problem.direction],
        "type": problem.dtype,
        "layout": problem.layout,
        "batch": f"{problem.batch}",
        "channels": f"{problem.in_channels} to {problem.out_channels}",
        "image": f"{_size(problem.in_size)} to {_size(problem.out_size)}",
        "filter": _size(problem.filter_size),
    }
    if problem.groups > 1:
        words["groups"] = f"{problem.groups}"
    for name, steps in (("stride", problem.stride), ("dilation", problem.dilation)):
        if set(steps) != {1}:
            words[name] = _size(steps)
    return words | (_work(problem, device) if device else {})


def _work(problem: ConvProblem, device: DeviceFacts) -> dict[str, str]:
    row = features_of_raw(raw_numbers(problem), problem.direction, device)
    of: dict[str, float] = dict(zip(FEATURE_NAMES, row.tolist(), strict=True))
    return {
        "GEMM": " x ".join(f"{of[name]:,.0f}" for name in ("gemm_m", "gemm_n", "gemm_k")),
        "work": f"{2 ** of['log_flops'] / 1e9:.3g} GFLOP",
        "traffic": f"{2 ** of['log_traffic'] / 2**20:.3g} MiB",
        "roofline": f"{2 ** of['roofline'] * 1e6:.3g} us",
    }


def _size(numbers: tuple[int, ...]) -> str:
    return "x".join(map(str, numbers))
