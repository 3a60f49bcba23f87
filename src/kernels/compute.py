"""Computing problems with callers' arrays."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import numpy as np

from foretune.errors import InputError
from foretune.kernels.problem import Problem, Tensor
from foretune.kernels.registry import naive_solver, tensors
from foretune.kernels.registry import solver as solver_of
from foretune.kernels.runtime.arrays import (
    empty_like,
    place_of,
    stream_handle,
    view_of,
)
from foretune.kernels.runtime.device import Buffer, OutOfDeviceMemoryError, open_device
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.runtime.fitting import (
    ALIGNMENT,
    check_overlap,
    host_array,
    is_aligned,
    is_by_memory,
    lies_as,
    lies_over_itself,
    order_in,
)
from foretune.kernels.solver import Candidate, Plan
from foretune.kernels.space import Config

#: Seconds that are spent on measuring a problem that nothing is known of.
DEFAULT_BUDGET = 2.0


def compute(
    problem: Problem,
    *,
    out: Any = None,
    solver: str | None = None,
    config: str | Mapping[str, int] | None = None,
    device: str | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    stream: Any = None,
    deterministic: bool = False,
    workspace_limit: int | None = None,
    budget: float = DEFAULT_BUDGET,
    **arrays: Any,
) -> Any:
    """Compute output = alpha * result (+ bias) + beta * output.

    Parameters
    ----------
    problem : Problem
        Such as a `foretune.ConvProblem`.
    out : array, optional
        Where the output goes. Default: a new one of the inputs' kind.
    solver : str, optional
        Its id. Default: the fastest on this device that find or tune has found for this problem;
        if nothing is known of it, `foretune.kernels.find.find` is asked for at most ``budget``
        seconds, once and for all.
    config : str or mapping, optional
        Of the solver's space, such as "THREADS=64". Default: the solver's default.
    device : str, optional
        "cpu", "cuda:0", "hip". Default: where the arrays lie. Arrays of the host are copied to a
        GPU that is asked for.
    alpha, beta : float
    stream : int or stream, optional
        A stream of the caller's, on which everything is started without waiting. Default:
        PyTorch's current stream for its tensors; for other arrays one of foretune's own, and the
        result is complete on return.
    deterministic : bool, default False
        Leave out candidates that add atomically, whose results differ from run to run.
    workspace_limit : int, optional
        Bytes of scratch memory that may be used.
    budget : float, default 2
        Seconds.
    **arrays
        The inputs by name: for convolutions x, w and y without the one that is computed, and bias.
        NumPy arrays, or any with ``__dlpack__``; FP16 and BF16 may come as 16-bit integers too.
        Shapes are either the tensors' own, (N, C, H, W), with the strides of the problem's layout,
        or those of memory, such as (N, H, W, C).

    Returns
    -------
    array
        The output, shaped as the first input is.

    Raises
    ------
    InputError
        Before anything is compiled: if arrays don't fit the problem, a type can't be computed,
        there is no such device, solver or config, or it needs more workspace than allowed.

    Examples
    --------
    >>> import numpy as np
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> problem = ConvProblem("F", 1, 3, (5, 5), 4, (3, 3))
    >>> x, w = np.ones((1, 3, 5, 5), np.float32), np.ones((4, 3, 3, 3), np.float32)
    >>> y = compute(problem, x=x, w=w, solver="ConvNaive")
    >>> y.shape, float(y[0, 0, 0, 0])
    ((1, 4, 3, 3), 27.0)
    """
    if not hasattr(problem, "operation"):
        raise InputError(f"expected one, such as a ConvProblem, got {problem!r}", "problem")
    if workspace_limit is not None and workspace_limit < 0:
        raise InputError(f"expected bytes, got {workspace_limit}", "workspace_limit")
    described = {tensor.name: tensor for tensor in tensors(problem)}
    output = next(tensor for tensor in described.values() if tensor.is_output)
    inputs = {name: array for name, array in arrays.items() if array is not None}
    _check_names(described, inputs)
    if beta != 0 and out is None:
        raise InputError("beta is set: give the output's old content as out=", "out")
    session = _session(_device_name({**inputs, "out": out}, device))
    first = next(iter(inputs.values()))
    handle = _stream(stream, first, session)
    with session.on_stream(handle) as number:
        arguments = {
            name: _Argument(described[name], array, name, session, number)
            for name, array in inputs.items()
        }
        if out is None:
            order = order_in(output, arguments[next(iter(inputs))].by_memory)
            shape = output.memory_shape if order != output.order else output.shape
            out = empty_like(first, shape, order, "out")
        target = _Argument(output, out, "out", session, number)
        if target.view.is_read_only:
            raise InputError("can't be written", "out")
        if not target.is_direct and lies_over_itself(target.view):
            raise InputError("some of its elements share memory; give another", "out")
        check_overlap(target.view, [(name, given.view) for name, given in arguments.items()])
        if solver is None:
            if config is not None:
                raise InputError("a config goes with a solver: name that too", "solver")
            candidate = session.fastest(problem, deterministic, workspace_limit, budget)
        else:
            if not isinstance(config, str | Mapping | None):
                raise InputError(f"expected NAME=number,... or a mapping, got {config!r}", "config")
            key = config if isinstance(config, str | None) else Config(config).key
            candidate = session.candidate(problem, solver, key, deterministic)
        plan = _plan(candidate, problem, alpha, beta)
        workspace = session.workspace(candidate, plan, workspace_limit)
        session.run(plan, arguments, target, workspace, beta != 0, handle is None)
    return out


class PackedCall:
    """A candidate that is ready to compute a problem with arrays that lie as the problem says.

    What `compute` finds out about arrays at each call is the caller's business here.

    Parameters
    ----------
    problem : Problem
    device, solver, config : str
        As for `compute`.
    beta : float
    deterministic : bool
    workspace_limit : int or None
    """

    def __init__(
        self,
        problem: Problem,
        device: str,
        solver: str,
        config: str | None,
        beta: float,
        deterministic: bool,
        workspace_limit: int | None,
    ) -> None:
        self._session = _session(device)
        self._candidate = self._session.candidate(problem, solver, config, deterministic)
        self._plan = _plan(self._candidate, problem, 1.0, beta)
        self._limit = workspace_limit
        described = tensors(problem)
        self._nbytes = {tensor.name: tensor.nbytes for tensor in described}
        self._output = next(tensor.name for tensor in described if tensor.is_output)

    def __call__(self, addresses: Mapping[str, int], stream: int | None = None) -> None:
        """Compute.

        Parameters
        ----------
        addresses : mapping
            Where the tensors start, the output too: packed, aligned, on the device, disjoint.
        stream : int, optional
            A stream of the caller's. Without one, the result is complete on return.
        """
        session = self._session
        with session.on_stream(stream):
            session.run_packed(
                self._plan,
                {name: (address, self._nbytes[name]) for name, address in addresses.items()},
                self._output,
                session.workspace(self._candidate, self._plan, self._limit),
                stream is None,
            )


#: Finds a call that was made before.
packed_call: Callable[..., PackedCall] = lru_cache(maxsize=4096)(PackedCall)


class _Argument:
    """An array of the caller's for a tensor."""

    def __init__(
        self, tensor: Tensor, array: Any, name: str, session: _Session, stream: int | None
    ) -> None:
        self.tensor = tensor
        self.view = view_of(array, name, stream)
        self.by_memory = is_by_memory(tensor, self.view, name)
        fits = lies_as(tensor, self.view, self.by_memory)
        #: Whether kernels can use the memory as it lies.
        self.is_direct = fits and is_aligned(self.view) and session.reaches(self.view.place)
        if not self.is_direct and self.view.place != "cpu":
            raise InputError(
                f"starts at an address that is no multiple of {ALIGNMENT}; pass a copy"
                if fits
                else f"strides are {self.view.strides}, the problem's layout says "
                f"{tensor.strides}; pass a contiguous copy",
                name,
            )

    def in_memory_order(self) -> Any:
        """Give the host's array with its axes as kernels expect them."""
        return host_array(self.view).transpose(order_in(self.tensor, self.by_memory))


class _Session:
    """A device with its kernels and workspaces; works for one thread at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.device = open_device(name)
        self.properties = self.device.properties
        self.is_processor = self.properties.arch == "cpu"
        self._executor = Executor(self.device)
        self._workspaces: dict[int, Buffer] = {}
        self._lock = threading.RLock()
        # Checking takes longer than launching; and an answer of find that isn't complete is in no
        # store.
        self.fastest: Callable[..., Candidate[Any]] = lru_cache(maxsize=1024)(self._fastest)
        self.candidate: Callable[..., Candidate[Any]] = lru_cache(maxsize=1024)(self._checked)

    def reaches(self, place: str) -> bool:
        """Whether kernels can use memory of this place."""
        backend = self.properties.backend
        return place == "cpu" if backend == "opencl" else place.startswith(backend)

    @contextmanager
    def on_stream(self, handle: int | None) -> Iterator[int | None]:
        """Work on a stream; gives its number as DLPack counts."""
        with self._lock, nullcontext() if handle is None else self.device.on_stream(handle):
            yield self.device.stream_number()

    def _checked(
        self, problem: Problem, solver_id: str, config: str | None, deterministic: bool
    ) -> Candidate[Any]:
        """Check what the caller chose."""
        solver = solver_of(problem.operation, solver_id)
        reason = solver.why_not(problem, self.properties)
        if reason is not None:
            raise InputError(f"{solver_id} can't compute this: {reason}", "solver")
        if config is None:
            chosen = solver.default_config(problem, self.properties)
        else:
            chosen = solver.space(problem, self.properties).parse(config)
        candidate = Candidate(solver, chosen)
        if deterministic and solver.adds_atomically(problem, chosen):
            raise InputError(f"{candidate.key} adds atomically: it isn't deterministic", "solver")
        return candidate

    def _fastest(
        self, problem: Problem, deterministic: bool, workspace_limit: int | None, budget: float
    ) -> Candidate[Any]:
        """Choose what is known to be the fastest."""
        # Whoever names a solver needs none of what measures.
        from foretune.kernels.find import find

        known = find(
            problem,
            self._name,
            budget=budget,
            workspace_limit=workspace_limit,
            deterministic=deterministic,
        )
        if not known.solutions:
            naive = naive_solver(problem.operation)
            return Candidate(naive, naive.default_config(problem, self.properties))
        best = known.solutions[0]
        return self.candidate(problem, best.solver, best.config, deterministic)

    def workspace(self, candidate: Candidate[Any], plan: Plan, limit: int | None) -> Buffer | None:
        """Have enough scratch memory for what runs on the present stream."""
        if limit is not None and plan.workspace > limit:
            raise InputError(
                f"{candidate.key} needs {plan.workspace} bytes of workspace, {limit} are allowed",
                "workspace_limit",
            )
        if not plan.workspace:
            return None
        stream = self.device.stream_number() or 0
        held = self._workspaces.get(stream)
        if held is not None and held.nbytes >= plan.workspace:
            return held
        try:
            made = self.device.alloc(plan.workspace)
        except OutOfDeviceMemoryError:
            raise InputError(
                f"{candidate.key} needs {plan.workspace} bytes of workspace, more than the device "
                "has left",
                "device",
            ) from None
        if held is not None:
            self.device.synchronize()
            held.free()
        self._workspaces[stream] = made
        return made

    def run(
        self,
        plan: Plan,
        arguments: Mapping[str, _Argument],
        output: _Argument,
        workspace: Buffer | None,
        reads_output: bool,
        waits: bool,
    ) -> None:
        """Build what is missing and start it; wait if the caller has no stream to wait on."""
        staged: list[Buffer] = []
        buffers = {name: self._input(given, staged) for name, given in arguments.items()}
        target = (
            self._input(output, staged)
            if reads_output or output.is_direct
            else self.device.alloc(output.tensor.nbytes)
        )
        buffers[output.tensor.name] = target
        run = self._executor.prepare(plan, {**buffers, "workspace": workspace})
        # A program that goes on for days needs no compiler waiting beside it.
        self._executor.close()
        run()
        if not output.is_direct:
            result = np.empty(output.in_memory_order().shape, host_array(output.view).dtype)
            self.device.read(target, result)
            output.in_memory_order()[...] = result
            staged.append(target)
        elif self.reaches("cpu"):
            self.device.publish(target)
        elif waits or staged:
            self.device.synchronize()
        for buffer in staged:
            buffer.free()

    def run_packed(
        self,
        plan: Plan,
        memory: Mapping[str, tuple[int, int]],
        output: str,
        workspace: Buffer | None,
        waits: bool,
    ) -> None:
        """Start a plan on memory that kernels can use, as addresses and bytes."""
        wrap = self.device.wrap
        buffers: dict[str, Buffer | None] = {
            name: wrap(address, nbytes) for name, (address, nbytes) in memory.items()
        }
        target = buffers[output]
        assert target is not None
        buffers["workspace"] = workspace
        run = self._executor.prepare(plan, buffers)
        self._executor.close()
        run()
        if self.reaches("cpu"):
            self.device.publish(target)
        elif waits:
            self.device.synchronize()

    def _input(self, given: _Argument, staged: list[Buffer]) -> Buffer:
        if given.is_direct:
            return self.device.wrap(given.view.address, given.tensor.nbytes)
        staged.append(self.device.upload(np.ascontiguousarray(given.in_memory_order())))
        return staged[-1]


def _make_plan(candidate: Candidate[Any], problem: Problem, alpha: float, beta: float) -> Plan:
    return candidate.solver.plan(problem, candidate.config, alpha, beta)


_plan: Callable[..., Plan] = lru_cache(maxsize=1024)(_make_plan)


@lru_cache(maxsize=16)
def _session(device: str) -> _Session:
    return _Session(device)


def _check_names(described: Mapping[str, Tensor], inputs: Mapping[str, Any]) -> None:
    for name in inputs:
        if name not in described:
            raise InputError(f"is no tensor of the problem: {', '.join(described)}", name)
        if described[name].is_output:
            raise InputError("is what the problem computes: give it as out=", name)
    for name, tensor in described.items():
        if name not in inputs and not tensor.is_output:
            raise InputError("is an input of the problem: it has to be given", name)


def _device_name(arrays: Mapping[str, Any], device: str | None) -> str:
    """Name the device: the one asked for, else where the arrays lie."""
    places = {name: place_of(array, name) for name, array in arrays.items() if array is not None}
    chosen = next(iter(places.values())) if device is None else device
    if ":" not in chosen and chosen in ("cuda", "hip"):
        chosen += ":0"
    for name, place in places.items():
        if place != chosen and (device is None or place != "cpu"):
            raise InputError(f"lies on {place}, not on {chosen}", name)
    return chosen


def _stream(stream: Any, first: Any, session: _Session) -> int | None:
    if stream is not None:
        if session.is_processor:
            raise InputError("a processor has none; leave it out", "stream")
        return stream_handle(stream)
    is_torch = type(first).__module__.partition(".")[0] == "torch"
    if is_torch and place_of(first, "") != "cpu":
        current: Any = sys.modules["torch"].cuda.current_stream(first.device)
        return int(current.cuda_stream)
    return None
