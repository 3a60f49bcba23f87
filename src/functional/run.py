"""Computing a convolution with callers' arrays: who computes it is asked for, not searched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypedDict

import numpy as np

from foretune.errors import InputError
from foretune.functional.arrays import (
    Form,
    address_of,
    assign,
    device_of,
    form_of,
    is_packed,
    packed,
    stream_of,
)
from foretune.functional.conv_arguments import ConvCall
from foretune.kernels.compute import compute, packed_call
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.problem import Tensor
from foretune.kernels.registry import naive_solver
from foretune.kernels.runtime.arrays import empty_like
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
    device = device_of(first) if asked.device is None else _device(asked.device)
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
    if bias is not None:
        bias = packed(bias, form_of(bias, "bias"), (0,), "bias")
        if problem.direction == "F":
            problem = _with_bias(problem)
            given["bias"] = bias
        else:
            # Kernels add a bias to a forward output alone. Others find it as its old content.
            if target is None:
                target = empty_like(first, output.shape, output.order, "out")
            assign(target, bias[(None, slice(None), *(None,) * (len(output.shape) - 2))], "bias")
            beta = 1.0
    job = _Job(problem, given, output, target, device, beta, asked)
    try:
        made = _computed(chooser, chosen, job)
    except InputError as error:
        if error.where in names:
            raise InputError(error.message, names[error.where]) from None
        raise
    if out is not None and made is not out:
        assign(out, made, "out")
        return out
    return made


class _Job(NamedTuple):
    """What is left to be computed once it is known by whom."""

    problem: ConvProblem
    given: dict[str, Any]
    output: Tensor
    out: Any
    device: str
    beta: float
    asked: Asked


def _computed(chooser: Selector, chosen: Decision, job: _Job) -> Any:
    try:
        return _compute(job, chosen.solver, chosen.config or None)
    except DeviceError as error:
        naive = naive_solver(job.problem.operation).id
        if chosen.solver == naive:
            raise
        try:
            made = _compute(job, naive, None)
        except DeviceError:
            # It is the device that is broken.
            raise error from None
        chooser.reject(chosen, str(error))
        return made


def _compute(job: _Job, solver: str, config: str | None) -> Any:
    asked = job.asked
    first = next(iter(job.given.values()))
    out = job.out
    if out is None:
        out = empty_like(first, job.output.shape, job.output.order, "out")
    addresses = _addresses(job, out)
    if addresses is None:
        return compute(
            job.problem,
            out=out,
            solver=solver,
            config=config,
            device=job.device,
            beta=job.beta,
            stream=asked.stream,
            deterministic=asked.deterministic,
            workspace_limit=asked.workspace_limit,
            **job.given,
        )
    call = packed_call(
        *(job.problem, job.device, solver, config, job.beta),
        *(asked.deterministic, asked.workspace_limit),
    )
    call(addresses, stream_of(first))
    return out


def _addresses(job: _Job, out: Any) -> dict[str, int] | None:
    """Tell where arrays start; None if `compute` has to look at them more closely."""
    if job.asked.stream is not None:
        return None
    addresses = {}
    for name, array in (*job.given.items(), (job.output.name, out)):
        address = address_of(array)
        if address is None or device_of(array) != job.device:
            return None
        addresses[name] = address
    if out is job.out and not _is_apart(job, addresses):
        return None
    return addresses


def _is_apart(job: _Job, addresses: Mapping[str, int]) -> bool:
    """Whether a caller's output can be written without regard to the other arrays."""
    if isinstance(job.out, np.ndarray) and not job.out.flags.writeable:
        return False
    start = addresses[job.output.name]
    end = start + job.output.nbytes
    return all(
        start >= addresses[name] + int(array.nbytes) or end <= addresses[name]
        for name, array in job.given.items()
    )


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
