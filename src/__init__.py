"""foretune picks GPU kernels without searching.

>>> import foretune
>>> problem = foretune.ConvProblem("F", 32, 64, (56, 56), 128, (1, 1), dtype="FP16")
>>> foretune.predict(problem, arch="gfx942", compute_units=304).arch
'gfx942'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretune.api import Predictor, find, predict
    from foretune.errors import InputError
    from foretune.functional import (
        conv1d,
        conv1d_input,
        conv1d_weight,
        conv2d,
        conv2d_input,
        conv2d_weight,
        conv3d,
        conv3d_input,
        conv3d_weight,
        conv_transpose1d,
        conv_transpose2d,
        conv_transpose3d,
    )
    from foretune.kernels.compute import compute
    from foretune.kernels.conv.problem import ConvProblem
    from foretune.kernels.found import Found, FoundSolution
    from foretune.predictor.prediction import Prediction, Solution

__all__ = [
    "ConvProblem",
    "Found",
    "FoundSolution",
    "InputError",
    "Prediction",
    "Predictor",
    "Solution",
    "__version__",
    "compute",
    "conv1d",
    "conv1d_input",
    "conv1d_weight",
    "conv2d",
    "conv2d_input",
    "conv2d_weight",
    "conv3d",
    "conv3d_input",
    "conv3d_weight",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "find",
    "predict",
]

# A constant, because asking importlib.metadata takes as long as an answer.
__version__ = "0.1.0"

_HOMES = {
    "ConvProblem": "foretune.kernels.conv.problem",
    "Found": "foretune.kernels.found",
    "FoundSolution": "foretune.kernels.found",
    "InputError": "foretune.errors",
    "Prediction": "foretune.predictor.prediction",
    "Predictor": "foretune.api",
    "Solution": "foretune.predictor.prediction",
    "compute": "foretune.kernels.compute",
    "find": "foretune.api",
    "predict": "foretune.api",
    **dict.fromkeys((name for name in __all__ if name.startswith("conv")), "foretune.functional"),
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
