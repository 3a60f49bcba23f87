"""A model out of someone's Python file, run on the inputs of a command line."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.model_inputs import InputShape, parse_input
from foretune.torch.trace import Trace, trace

_DTYPES = {
    "FP32": torch.float32,
    "FP16": torch.float16,
    "BF16": torch.bfloat16,
    "FP64": torch.float64,
    "INT8": torch.int8,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "BOOL": torch.bool,
}
_MODEL_DTYPES = ("FP32", "FP16", "BF16", "FP64")


def trace_model_file(
    path: str,
    name: str,
    inputs: Sequence[str],
    *,
    dtype: str = "",
    backward: bool = False,
    channels_last: bool = False,
    autocast: bool = False,
) -> Trace:
    r"""Find the convolutions of a model that a Python file builds.

    Parameters
    ----------
    path : str
        The file. What it prints goes to standard error.
    name : str
        Its function or class that gives the model when it is called without arguments, or the
        model itself.
    inputs : sequence of str
        For each run the shapes of its input, as `foretune.miopen.model_inputs.parse_input` reads
        them.
    dtype : str, default ""
        Type of parameters and inputs, or of autocast, such as "fp16"; "" for the model's own, and
        for fp16 under autocast.
    backward : bool, default False
        Also the gradients; without them the model is put into evaluation mode.
    channels_last, autocast : bool, default False
        As for `foretune.torch.capture`.

    Returns
    -------
    Trace
        What MIOpen is asked for, and what not.

    Raises
    ------
    InputError
        If the file, the model or the inputs can't be used, or the model fails.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "net.py")
    ...     _ = file.write_text("import torch\nnet = torch.nn.Conv2d(3, 8, 3)")
    ...     traced = trace_model_file(str(file), "net", ["1x3x32x32"], dtype="fp16")
    >>> [(problem.dtype, problem.out_size) for problem in traced.counts]
    [('FP16', (30, 30))]
    """
    where = f"{path}:{name}"
    if not inputs:
        raise InputError("a model needs the shape of its input, such as --input 1x3x224x224", where)
    runs = [_arguments(parse_input(text)) for text in inputs]
    kind = _model_dtype(dtype)
    cast = (kind or torch.float16) if autocast else None
    if cast not in (None, torch.float16, torch.bfloat16):
        raise InputError(f"autocast computes in fp16 or bf16, not {dtype}", "--dtype")
    with redirect_stdout(sys.stderr):
        model = _build(_find(path, name), path, where)
        if isinstance(model, torch.nn.Module) and not backward:
            model.eval()
        counts: Counter[ConvProblem] = Counter()
        native: Counter[str] = Counter()
        for text, run in zip(inputs, runs, strict=True):
            with _told(f"{where}, --input {text}", path):
                traced = trace(
                    model,
                    [run],
                    backward=backward,
                    dtype=None if cast else kind,
                    channels_last=channels_last,
                    autocast=cast,
                )
            counts.update(traced.counts)
            native.update(traced.native)
    return Trace(dict(counts), dict(native))


def _model_dtype(name: str) -> torch.dtype | None:
    if not name:
        return None
    if name.upper() not in _MODEL_DTYPES:
        known = ", ".join(known.lower() for known in _MODEL_DTYPES)
        raise InputError(f"expected one of {known}, got {name!r}", "--dtype")
    return _DTYPES[name.upper()]


def _arguments(tensors: list[InputShape]) -> tuple[Any, ...] | dict[str, Any]:
    if tensors[0].name:
        return {tensor.name: _argument(tensor) for tensor in tensors}
    return tuple(map(_argument, tensors))


def _argument(tensor: InputShape) -> Any:
    if not tensor.dtype:
        return tensor.sizes
    if tensor.dtype not in _DTYPES:
        raise InputError(f"PyTorch has no input of type {tensor.dtype.lower()}", "--input")
    return torch.empty(tensor.sizes, dtype=_DTYPES[tensor.dtype], device="meta")


def _find(path: str, name: str) -> Any:
    if not Path(path).is_file():
        raise InputError("there is no such file", path)
    module = _import(path)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = [known for known, value in vars(module).items() if _may_build(value, module)]
            hint = f"; it has {', '.join(names[:20])}" if names else ""
            raise InputError(f"there is no {name!r} in it{hint}", path)
        found = getattr(found, part)
    if not callable(found):
        raise InputError(f"expected a function, a class or a model, got {found!r:.80}", path)
    return found


def _may_build(value: Any, module: ModuleType) -> bool:
    return callable(value) and getattr(value, "__module__", "") == module.__name__


def _import(path: str) -> ModuleType:
    # A name of its own: the file may be called as a package that it imports.
    name = f"foretune_model_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError("it can't be imported as a Python file", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # What stands beside it can be imported, as if it were run.
    sys.path.insert(0, str(Path(path).resolve().parent))
    with _told(path, path, "it can't be imported"):
        spec.loader.exec_module(module)
    return module


def _build(found: Callable[..., Any], path: str, where: str) -> Callable[..., Any]:
    if isinstance(found, torch.nn.Module):
        return found
    try:
        # Of tensors without values, so that large models cost nothing.
        with FakeTensorMode(allow_non_fake_inputs=True):
            model = found()
    except Exception:
        with _told(where, path, "it can't be built"):
            model = found()
    if not callable(model):
        raise InputError(f"it gives no model, but {model!r:.80}", where)
    return model  # type: ignore[no-any-return]


@contextmanager
def _told(where: str, path: str, what: str = "the model fails") -> Iterator[None]:
    """Tell in one line whatever someone else's code raises."""
    try:
        yield
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise InputError(
            f"the model asks for values of tensors{_line(error, path)}, and nothing is computed "
            "here; take its log with MIOPEN_ENABLE_LOGGING_CMD=1 instead",
            where,
        ) from None
    except (Exception, SystemExit) as error:
        message = " ".join(str(error).split()) or "no message"
        raise InputError(
            f"{what}: {type(error).__name__}: {message:.400}{_line(error, path)}", where
        ) from None


def _line(error: BaseException, path: str) -> str:
    """Line of the file that the error came through last."""
    if isinstance(error, SyntaxError):
        return f" (line {error.lineno})"
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).name == Path(path).name
    ]
    return f" (line {lines[-1]})" if lines else ""
