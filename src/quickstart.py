"""foretune's main job in a minute, without a GPU: predict, check, count what it saves."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from foretune.api import Predictor
from foretune.errors import InputError
from foretune.kernels.bench import Bench
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.find import find
from foretune.kernels.registry import solver
from foretune.kernels.runtime.device import open_device
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.runtime.opencl import why_absent
from foretune.kernels.solver import Candidate
from foretune.kernels.store import Store
from foretune.kernels.suites import read_suite
from foretune.predictor.default_candidate import default_candidate
from foretune.predictor.prediction import Prediction
from foretune.predictor.select import Selector

#: Seconds of search for each layer.
DEFAULT_BUDGET = 4.0
#: ResNet-20 for CIFAR-10 (He et al., 2015), four images: its different convolutions, and how often
#: each is in the network.
_RESNET20 = (
    ("stem", 1, 3, 32, 16, 1),
    ("stage 1", 6, 16, 32, 16, 1),
    ("to stage 2", 1, 16, 32, 32, 2),
    ("stage 2", 5, 32, 16, 32, 1),
    ("to stage 3", 1, 32, 16, 64, 2),
    ("stage 3", 5, 64, 8, 64, 1),
)
_BATCH = 4
#: Seconds that a race of two candidates may take.
_RACE = 3.0


@dataclass(frozen=True)
class MIOpenPart:
    """What MIOpen's solvers take on a GPU that isn't here.

    Attributes
    ----------
    device, network : str
    answers : tuple of Prediction
        One for each convolution and direction.
    seconds : float
        That loading the model and answering took.
    """

    device: str
    network: str
    answers: tuple[Prediction, ...]
    seconds: float


@dataclass(frozen=True)
class CheckedLayer:
    """A layer whose pick was measured beside the best of a search.

    Attributes
    ----------
    name : str
    problem : ConvProblem
    count : int
        How often it is in the network.
    pick : str
        Key of the candidate that was chosen without measuring.
    rung, reason : str
        Who chose, and why.
    best : str
        Key of the fastest that is known after a search.
    pick_ms, best_ms, default_ms : float
        Measured side by side; the last is of the candidate that is taken where nothing is known.
    ask_seconds, search_seconds : float
    """

    name: str
    problem: ConvProblem
    count: int
    pick: str
    rung: str
    reason: str
    best: str
    pick_ms: float
    best_ms: float
    default_ms: float
    ask_seconds: float
    search_seconds: float


@dataclass(frozen=True)
class KernelsPart:
    """What foretune's own kernels take on this machine's processor.

    Attributes
    ----------
    device, network : str
    layers : tuple of CheckedLayer
    load_seconds : float
        That opening the device and loading the model took, once.
    """

    device: str
    network: str
    layers: tuple[CheckedLayer, ...]
    load_seconds: float

    @property
    def pick_ms(self) -> float:
        """Time of the network's convolutions as picked."""
        return sum(layer.count * layer.pick_ms for layer in self.layers)

    @property
    def best_ms(self) -> float:
        """Time of the network's convolutions with the best that was found."""
        return sum(layer.count * layer.best_ms for layer in self.layers)

    @property
    def default_ms(self) -> float:
        """Time of the network's convolutions with default candidates."""
        return sum(layer.count * layer.default_ms for layer in self.layers)

    @property
    def ask_seconds(self) -> float:
        """What asking for all of them took."""
        return sum(layer.ask_seconds for layer in self.layers)

    @property
    def search_seconds(self) -> float:
        """What searching for all of them took."""
        return sum(layer.search_seconds for layer in self.layers)


def predict_for_miopen() -> MIOpenPart:
    """Predict the convolutions of ResNet-50's training for an MI300X.

    Examples
    --------
    >>> part = predict_for_miopen()
    >>> part.device, len(part.answers) > 60
    ('MI300X (gfx942, 304 CU)', True)
    """
    problems = [
        replace(problem, dtype="FP16", weight_dtype="FP16", out_dtype="FP16")
        for problem in read_suite("resnet50")
        if isinstance(problem, ConvProblem) and (problem.dtype, problem.layout) == ("FP32", "NCHW")
    ]
    start = time.perf_counter()
    answers = Predictor("gfx942", 304).predict_many(problems)
    seconds = time.perf_counter() - start
    network = "ResNet-50, batch 32, FP16, forward and both gradients"
    return MIOpenPart("MI300X (gfx942, 304 CU)", network, tuple(answers), seconds)


def check_on_processor(
    budget: float = DEFAULT_BUDGET, show: Callable[[str, int, int], None] | None = None
) -> KernelsPart:
    """Pick kernels for a small network on this machine's processor, and search for better ones.

    Parameters
    ----------
    budget : float, default 4
        Seconds of search for each layer.
    show : callable, optional
        Takes a text, layers done and layers in all.

    Raises
    ------
    InputError
        If no processor can be computed on; the message says what to install.
    """
    if not budget > 0:
        raise InputError(f"expected seconds above 0, got {budget}", "budget")
    reason = why_absent()
    if reason is not None:
        raise InputError(reason, "cpu")
    start = time.perf_counter()
    chooser = Selector("cpu", store=Store(":memory:"))
    executor = Executor(open_device("cpu"))
    # Anything unlike the layers: what is loaded once is no layer's cost.
    chooser.choose(ConvProblem("F", 1, 8, (8, 8), 8, (1, 1)), mode="FAST")
    load_seconds = time.perf_counter() - start
    layers = []
    try:
        for done, (name, count, channels, size, outputs, stride) in enumerate(_RESNET20):
            if show is not None:
                show(f"searching for {name}", done, len(_RESNET20))
            problem = ConvProblem(
                *("F", _BATCH, channels, (size, size), outputs, (3, 3)),
                stride=(stride, stride),
                padding=(1, 1),
            )
            layers.append(_checked(name, count, problem, chooser, executor, budget))
    finally:
        chooser.close()
        executor.close()
    network = f"ResNet-20 for CIFAR-10, batch {_BATCH}, FP32, forward"
    return KernelsPart(executor.device.properties.name, network, tuple(layers), load_seconds)


def _checked(
    name: str,
    count: int,
    problem: ConvProblem,
    chooser: Selector,
    executor: Executor,
    budget: float,
) -> CheckedLayer:
    start = time.perf_counter()
    decision = chooser.choose(problem, mode="FAST")
    ask_seconds = time.perf_counter() - start
    found = find(problem, "cpu", budget=budget, store=Store(":memory:"))
    first = found.solutions[0]
    pick = _candidate(decision.solver, decision.config, problem, executor)
    best = _candidate(first.solver, first.config, problem, executor)
    default = default_candidate(problem, executor.device.properties)
    times = _race(problem, [pick, best, default], executor)
    # A search that ends early may have missed who is faster.
    fastest = min((pick, best, default), key=lambda one: times[one.key])
    return CheckedLayer(
        *(name, problem, count, pick.key, decision.rung, decision.reason, fastest.key),
        *(times[pick.key], times[fastest.key], times[default.key]),
        *(ask_seconds, found.seconds),
    )


def _candidate(
    solver_id: str, config: str, problem: ConvProblem, executor: Executor
) -> Candidate[Any]:
    known = solver(problem.operation, solver_id)
    return Candidate(known, known.space(problem, executor.device.properties).parse(config))


def _race(
    problem: ConvProblem, candidates: list[Candidate[Any]], executor: Executor
) -> dict[str, float]:
    """Measure candidates side by side, once their results were found right."""
    bench = Bench(executor, problem, check=True)
    try:
        for candidate in {one.key: one for one in candidates}.values():
            outcome = bench.attempt(candidate)
            if outcome.status != "measured":
                raise InputError(f"{candidate.key} {outcome.status}: {outcome.reason}", "cpu")
        bench.race.run(time.monotonic() + _RACE)
        return {key: result.time_ms for key, result in bench.results.items()}
    finally:
        bench.close()
