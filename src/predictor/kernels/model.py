"""Ranks the candidates of one operation on one arch. Asking needs numpy alone.

In three steps. From the problems learnt, those that are most alike name some dozens of candidates.
Two forests tell what each of those loses against the best, from the features of both together:
one learnt the order of candidates, the other, which sees the first of them, how far they lie apart.
What they got wrong on the problems that are most alike is added.
Candidates are then looked at in this order, and those that can't run, or keep no limit, are left
out. Another forest, the judge, says how probably each is within 1.10 of the best, and one more
tells times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from math import exp, nan
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.registry import solvers as all_solvers
from foretune.kernels.space import Config
from foretune.predictor.acceptance import check_risk
from foretune.predictor.candidates import DEFAULT_RISK, CandidateRanking, RankedCandidate
from foretune.predictor.features.conv import why_unsupported
from foretune.predictor.kernels.features import (
    PROBLEM_FEATURES,
    CandidateTable,
    ProblemView,
    parse_config,
)
from foretune.predictor.kernels.neighbours import Neighbours, coordinates

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretune.kernels.problem import Problem
    from foretune.kernels.runtime.properties import DeviceProperties
    from foretune.kernels.solver import Solver
    from foretune.kernels.space import Space
    from foretune.predictor.acceptance import Acceptance
    from foretune.predictor.forest import Forest

    Floats = npt.NDArray[np.float64]
    Places = npt.NDArray[np.intp]

#: Problems learnt that name candidates, and how many of those are ranked by order, then by both.
ASKED_NEIGHBOURS, RANKED, SHORTLISTED = 12, 96, 40
#: Log slowdown where there is no candidate: never a reason to pick another.
_UNKNOWN = 3.0

#: Features of the problem that the judge sees.
JUDGE_PROBLEM_FEATURES = (
    "dtype channels_last log_flops intensity gemm_m gemm_n gemm_k taps groups batch waves_128x128 "
    "depth_per_wave direction"
).split()
_JUDGE_AT = [(*PROBLEM_FEATURES, "direction").index(name) for name in JUDGE_PROBLEM_FEATURES]
#: What the judge sees of a candidate beside its rivals.
JUDGE_FEATURES = (
    *(
        "loss",
        "gap",
        "rank",
        "doubt",
        "solver",
        "unlike",
        "support",
        "near",
        "second_gap",
        "fourth_gap",
    ),
    *JUDGE_PROBLEM_FEATURES,
)

#: A problem's kind: direction, dimensions, type, layout, grouping.
Kind = tuple[int, ...]


def kind_of(view: ProblemView) -> Kind:
    """Give the kind of a problem: what must have been learnt before an answer is trusted."""
    raw = view.raw
    channels, groups = raw[5], raw[7]
    grouping = 0 if groups == 1 else 1 if groups == channels else 2
    return (view.direction_code, int(raw[0]), int(raw[1]), int(raw[3]), grouping)


@dataclass(frozen=True)
class Portfolio:
    """The candidates that are ranked.

    Attributes
    ----------
    solvers : tuple of str
        Ids.
    solver : tuple of int
        Place of each candidate's solver.
    config : tuple of str
        Text form of each candidate's config.
    """

    solvers: tuple[str, ...]
    solver: tuple[int, ...]
    config: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.solver)

    def key(self, candidate: int) -> str:
        """Text form of a candidate, as `foretune.kernels.solver.Candidate.key`."""
        solver, config = self.solvers[self.solver[candidate]], self.config[candidate]
        return f"{solver}{{{config}}}" if config else solver

    def table(self) -> CandidateTable:
        """Make what features are computed from."""
        parsed = map(parse_config, self.config)
        return CandidateTable(self.solvers, list(zip(self.solver, parsed, strict=True)))


@dataclass(frozen=True)
class Trust:
    """Where an answer may be accepted at all.

    Attributes
    ----------
    kinds : frozenset of Kind
        Of which enough shapes were learnt.
    low, high : mapping
        Dimensions -> lowest and highest of each ranged feature of the problems learnt.
    devices : tuple of DeviceProperties
        That were learnt.
    """

    kinds: frozenset[Kind]
    low: Mapping[int, tuple[float, ...]]
    high: Mapping[int, tuple[float, ...]]
    devices: tuple[DeviceProperties, ...]

    def why_not(self, view: ProblemView, kind: Kind) -> str:
        """Say why no answer may be accepted; empty if one may."""
        properties = view.device.properties
        if not any(
            (properties.name, properties.compute_units) == (known.name, known.compute_units)
            for known in self.devices
        ):
            return f"nothing was learnt on {properties.name} with {properties.compute_units} units"
        if kind not in self.kinds:
            return "too few problems of this kind (direction, type, layout, groups) were learnt"
        values = view.row.tolist()
        low, high = self.low[kind[1]], self.high[kind[1]]
        for name, at, least, most in zip(RANGED, _RANGED_AT, low, high, strict=True):
            if not least <= values[at] <= most:
                return f"{name} {values[at]:g} is outside what was learnt ({least:g} to {most:g})"
        return ""


#: Features of the problem whose range in training bounds what may be accepted.
RANGED = (
    "batch in_channels_group out_channels_group groups in_px out_px taps stride_h dil_h pad_h "
    "gemm_m gemm_n gemm_k log_flops log_traffic"
).split()
_RANGED_AT = [PROBLEM_FEATURES.index(name) for name in RANGED]


def ranged(view: ProblemView) -> tuple[float, ...]:
    """Features of a problem that `Trust` bounds."""
    values = view.row.tolist()
    return tuple(values[at] for at in _RANGED_AT)


class Guess(NamedTuple):
    """Candidates of a problem before anybody asked whether they can run, the best first.

    Attributes
    ----------
    order : list of int
        Candidates of the portfolio.
    rows : array of shape (candidates, features)
        In the same order.
    loss, doubt : list of float
        Predicted log slowdown, and how much the forests behind it differ.
    support : list of float
        How much was measured of them for problems that are alike.
    unlike : float
        Distance of the problem learnt that is most like it.
    """

    order: list[int]
    rows: npt.NDArray[np.float32]
    loss: list[float]
    doubt: list[float]
    support: list[float]
    unlike: float


@dataclass(frozen=True)
class CandidateRanker:
    """The forests and the portfolio of a model: who is probably fast, whoever can run.

    Attributes
    ----------
    portfolio : Portfolio
    neighbours : Neighbours
        The problems learnt; their lists hold candidates of the portfolio.
    orders : Forest
        From problem and candidate: a score that is higher for those that come first.
    scale : tuple of float
        Slope and offset that make a log slowdown of it.
    numbers : Forest
        From problem and candidate: log slowdown.
    times : Forest or None
        From problem and candidate: log time over the roofline; None while it isn't trained.
    judge : Forest or None
        Log-odds of being within 1.10 of the best; None while it isn't trained.
    with_device : bool
        Whether devices are among the features.
    """

    portfolio: Portfolio
    neighbours: Neighbours
    orders: Forest
    scale: tuple[float, float]
    numbers: Forest
    times: Forest | None
    judge: Forest | None
    with_device: bool = False
    _table: CandidateTable = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_table", self.portfolio.table())

    def view(self, problem: ConvProblem, device: DeviceProperties) -> ProblemView:
        """Compute what all candidates of a problem share."""
        return ProblemView(problem, device, with_device=self.with_device)

    def guess(self, view: ProblemView) -> Guess:
        """Order the candidates that the neighbours name."""
        asked = self.neighbours.ask(coordinates(view.row), ASKED_NEIGHBOURS, RANKED)
        chosen = np.array(asked.candidates, np.intp)
        rows = self._table.rows(view, chosen)
        surprise, support = self.neighbours.surprises(asked, chosen)
        by_order = self._by_order(rows)
        first = np.argsort(by_order + surprise, kind="stable")[:SHORTLISTED]
        by_number = self.numbers.predict(rows[first])[:, 0]
        loss = (by_order[first] + by_number) / 2 + surprise[first]
        again = np.argsort(loss, kind="stable")
        order = first[again]
        return Guess(
            chosen[order].tolist(),
            rows[order],
            loss[again].tolist(),
            np.abs(by_order[first] - by_number)[again].tolist(),
            support[order].tolist(),
            asked.unlike,
        )

    def _by_order(self, rows: npt.NDArray[np.float32]) -> Floats:
        slope, offset = self.scale
        return np.asarray(self.orders.predict(rows)[:, 0] * slope + offset)

    def losses_of(
        self, view: ProblemView, rows: npt.NDArray[np.float32], numbers: Places
    ) -> Floats:
        """Predict log slowdowns of any candidates.

        Parameters
        ----------
        view : ProblemView
        rows : array of shape (candidates, features)
        numbers : array of int
            Their places in the portfolio, -1 for those that it hasn't.
        """
        said = (self._by_order(rows) + self.numbers.predict(rows)[:, 0]) / 2
        asked = self.neighbours.ask(coordinates(view.row), 1, 1)
        surprise, _ = self.neighbours.surprises(asked, np.maximum(numbers, 0))
        return np.asarray(said + np.where(numbers >= 0, surprise, 0.0))

    def judged(self, view: ProblemView, guess: Guess, places: Sequence[int]) -> list[float]:
        """Give candidates the probability of being within 1.10 of the best.

        Parameters
        ----------
        view : ProblemView
        guess : Guess
        places : sequence of int
            Where the candidates that can run stand in the guess, the best first.
        """
        if self.judge is None:
            return [0.5] * len(places)
        odds = self.judge.predict(self.judge_rows(view, guess, places))[:, 0]
        return [1 / (1 + exp(-value)) for value in odds.tolist()]

    def judge_rows(
        self, view: ProblemView, guess: Guess, places: Sequence[int]
    ) -> npt.NDArray[np.float32]:
        """Put together what the judge sees of candidates, their rivals beside each."""
        first = places[0]
        rivals = guess.loss[first:]
        second, fourth = (rivals[n] if len(rivals) > n else _UNKNOWN for n in (1, 3))
        best = rivals[0]
        shared = (sum(loss < best + 0.05 for loss in rivals), second - best, fourth - best)
        values = view.row.tolist()
        of_problem = [values[at] for at in _JUDGE_AT]
        rows = []
        for place in places:
            solver = self.portfolio.solver[guess.order[place]]
            loss = guess.loss[place]
            gap = loss - best if place != first else best - second
            own = (
                loss,
                gap,
                place - first,
                guess.doubt[place],
                solver,
                guess.unlike,
                guess.support[place],
            )
            rows.append((*own, *shared, *of_problem))
        return np.array(rows, np.float32)

    def times_ms(self, view: ProblemView, guess: Guess, places: Sequence[int]) -> list[float]:
        """Predict the times of some candidates of a guess."""
        if self.times is None:
            return [nan] * len(places)
        said = self.times.predict(guess.rows[list(places)])[:, 0] + view.log_roofline
        times: list[float] = np.exp(said).tolist()
        return times


class KernelModel:
    """A trained model of an operation's candidates; answers `foretune.predictor.candidates`.

    Parameters
    ----------
    ranker : CandidateRanker
    trust : Trust
    acceptance : Acceptance
        Thresholds of the judge's probability.
    operation : str
    beats_default : bool
        As `foretune.predictor.candidates.CandidateRanking` has it.
    """

    def __init__(
        self,
        ranker: CandidateRanker,
        trust: Trust,
        acceptance: Acceptance,
        operation: str = "conv",
        *,
        beats_default: bool = True,
    ) -> None:
        self.ranker = ranker
        self.trust = trust
        self.operation = operation
        self._acceptance = acceptance
        self._beats_default = beats_default

    @property
    def devices(self) -> tuple[DeviceProperties, ...]:
        """Devices that it was learnt on."""
        return self.trust.devices

    def rank(
        self,
        problem: Problem,
        device: DeviceProperties,
        *,
        risk: float = DEFAULT_RISK,
        workspace_limit: int | None = None,
        deterministic: bool = False,
        excluded: AbstractSet[str] = frozenset(),
        top: int | None = None,
    ) -> CandidateRanking:
        """Rank the candidates of a problem; see `foretune.predictor.candidates.CandidateModel`."""
        check_risk(risk)
        if not isinstance(problem, ConvProblem):
            return CandidateRanking((), False, f"the model knows {self.operation} alone")
        reason = why_unsupported(problem)
        if reason:
            return CandidateRanking((), False, reason)
        view = self.ranker.view(problem, device)
        guess = self.ranker.guess(view)
        limits = _Limits(workspace_limit, deterministic, excluded)
        runnable = _Runnable(problem, device, self.ranker.portfolio, limits)
        places: list[int] = []
        for place in runnable.places(guess.order):
            places.append(place)
            if len(places) == top:
                break
        if not places:
            return CandidateRanking((), False, "none of the candidates that were learnt can run")
        scores = self.ranker.judged(view, guess, places)
        times = self.ranker.times_ms(view, guess, places)
        portfolio = self.ranker.portfolio
        candidates = []
        for place, time, score in zip(places, times, scores, strict=True):
            candidate = guess.order[place]
            solver = portfolio.solvers[portfolio.solver[candidate]]
            candidates.append(RankedCandidate(solver, portfolio.config[candidate], time, score))
        accepted, reason = self._verdict(view, device, runnable.is_limited, risk, scores[0])
        return CandidateRanking(tuple(candidates), accepted, reason, self._beats_default)

    def _verdict(
        self,
        view: ProblemView,
        device: DeviceProperties,
        is_limited: bool,
        risk: float,
        score: float,
    ) -> tuple[bool, str]:
        reason = self.trust.why_not(view, kind_of(view))
        if reason:
            return False, reason
        if is_limited:
            return False, "a candidate that seemed better keeps no limit or is excluded"
        return self.judge(device, risk, score)

    def judge(self, device: DeviceProperties, risk: float, score: float) -> tuple[bool, str]:
        """Accept a score on a device at a risk, or say why not."""
        return self._acceptance.judge(device.compute_units, ANY, 0, risk, score)


#: Stands for every direction in the thresholds, which all share.
ANY = "any"


class _Limits(NamedTuple):
    workspace: int | None
    deterministic: bool
    excluded: AbstractSet[str]


class _Runnable:
    """Finds out which candidates of a problem can run, as late as possible.

    Attributes
    ----------
    is_limited : bool
        Whether the first that can run was left out for a limit.
    """

    def __init__(
        self,
        problem: ConvProblem,
        device: DeviceProperties,
        portfolio: Portfolio,
        limits: _Limits,
    ) -> None:
        self._problem = problem
        self._device = device
        self._portfolio = portfolio
        self._limits = limits
        self._spaces: dict[int, tuple[Solver[Any], Space] | None] = {}
        self._found = 0
        self.is_limited = False

    def places(self, order: Sequence[int]) -> Iterator[int]:
        """Give the places in an order of those that can run within the limits."""
        for place, candidate in enumerate(order):
            known = self._space(self._portfolio.solver[candidate])
            if known is None:
                continue
            solver, space = known
            text = self._portfolio.config[candidate]
            values = _parsed(text)
            if space.why_not(values) is not None:
                continue
            if self._is_left_out(solver, text, values):
                self.is_limited |= not self._found
                continue
            self._found += 1
            yield place

    def _space(self, place: int) -> tuple[Solver[Any], Space] | None:
        if place not in self._spaces:
            solver = _solvers(self._problem.operation).get(self._portfolio.solvers[place])
            if solver is None or not solver.is_applicable(self._problem, self._device):
                self._spaces[place] = None
            else:
                self._spaces[place] = solver, solver.bounds(self._problem, self._device)
        return self._spaces[place]

    def _is_left_out(self, solver: Solver[Any], text: str, values: Config) -> bool:
        limits = self._limits
        if limits.excluded and (f"{solver.id}{{{text}}}" if text else solver.id) in limits.excluded:
            return True
        if limits.deterministic and solver.adds_atomically(self._problem, values):
            return True
        return (
            limits.workspace is not None
            and solver.workspace_size(self._problem, values) > limits.workspace
        )


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Config:
    return Config(parse_config(text))


@lru_cache(maxsize=16)
def _solvers(operation: str) -> dict[str, Solver[Any]]:
    return {solver.id: solver for solver in all_solvers(operation)}
