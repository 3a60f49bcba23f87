"""Computing a convolution with callers' arrays: who computes it is asked for, not searched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypedDict

from foretune.errors import InputError
from foretune.functional.arrays import Form, assign, form_of, is_packed, packed
from foretune.functional.conv_arguments import ConvCall
from foretune.kernels.compute import compute
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.problem import Tensor
from foretune.kernels.registry import naive_solver
from foretune.kernels.runtime.arrays import empty_like, place_of
from foretune.kernels.runtime.device import DeviceError
from foretune.predictor.candidates import DEFAULT_RISK
from foretune.predictor.decision import Decision
from foretune.predictor.select import Selector, selector


class Options(TypedDict, total=False):
    """What every function of `foretune.functional` takes by name."""

    layout: str | None
    out: Any
    mode: str | None
    budget_ms: float | None
    workspace_limit: int | None
    deterministic: bool
    risk: float
    device: str | None
    stream: Any


class Asked(NamedTuple):
    """`Options` with their defaults."""

    layout: str | None = None
    out: Any = None
    mode: str | None = None
    budget_ms: float | None = None
    workspace_limit: int | None = None
    deterministic: bool = False
    risk: float = DEFAULT_RISK
    device: str | None = None
    stream: Any = None


def run(
    call: ConvCall,
    arrays: Mapping[str, tuple[Any, Form]],
    names: Mapping[str, str],
    asked: Asked,
    *,
    bias: Any = None,
    out: Any = None,
) -> Any:
    """Compute a problem.

    Parameters
    ----------
    call : ConvCall
    arrays : mapping
        x, w, y without the one that is computed: arrays by logical axes, with their forms.
    names : mapping
        What callers know the tensors as.
    asked : Asked
        Its ``layout`` and ``out`` are the caller's business.
    bias : array, optional
        For each channel of the output.
    out : array, optional
        By logical axes.

    Returns
    -------
    array
        The output by logical axes; ``out`` if it was given.
    """
    given = {
        name: packed(array, form, call.tensors[name].order, names[name])
        for name, (array, form) in arrays.items()
    }
    output = call.tensors[call.output]
    target = out
    if out is not None:
        form = form_of(out, "out")
        _check_out(form, output)
        if not is_packed(out, form, output.order):
            target = None
    first = next(iter(given.values()))
    device = _device(place_of(first, "") if asked.device is None else asked.device)
    # A bias changes no candidate's place: decisions are those of the problem without.
    chooser = selector(device)
    chosen = chooser.choose(
        call.problem,
        mode=asked.mode,
        budget_ms=asked.budget_ms,
        workspace_limit=asked.workspace_limit,
        deterministic=asked.deterministic,
        risk=asked.risk,
    )
    problem, beta = call.problem, 0.0
    if bias is not None and problem.direction == "F":
        problem = _with_bias(problem)
        given["bias"] = bias
    elif bias is not None:
        # Kernels add a bias to a forward output alone. Others find it as the output's old content.
        if target is None:
            target = empty_like(first, output.shape, output.order, "out")
        assign(target, bias[(None, slice(None), *(None,) * (len(output.shape) - 2))], "bias")
        beta = 1.0
    rest: dict[str, Any] = {
        **{"out": target, "device": device, "beta": beta, "stream": asked.stream},
        **{"deterministic": asked.deterministic, "workspace_limit": asked.workspace_limit},
        **given,
    }
    try:
        made = _compute(chooser, chosen, problem, rest)
    except InputError as error:
        if error.where in names:
            raise InputError(error.message, names[error.where]) from None
        raise
    if out is not None and made is not out:
        assign(out, made, "out")
        return out
    return made


def _compute(
    chooser: Selector, chosen: Decision, problem: ConvProblem, rest: dict[str, Any]
) -> Any:
    try:
        return compute(problem, solver=chosen.solver, config=chosen.config or None, **rest)
    except DeviceError as error:
        naive = naive_solver(problem.operation).id
        if chosen.solver == naive:
            raise
        try:
            made = compute(problem, solver=naive, **rest)
        except DeviceError:
            # It is the device that is broken.
            raise error from None
        chooser.reject(chosen, str(error))
        return made


def _device(name: str) -> str:
    # The same device by two names would be opened twice.
    return f"{name}:0" if name in ("cuda", "hip") else name


def _check_out(form: Form, expected: Tensor) -> None:
    if form.dtype != expected.dtype:
        raise InputError(f"elements are {form.dtype}, expected {expected.dtype}", "out")
    if form.shape != expected.shape:
        raise InputError(f"expected shape {expected.shape}, got {form.shape}", "out")


@lru_cache(maxsize=1024)
def _with_bias(problem: ConvProblem) -> ConvProblem:
    return replace(problem, bias=1)
