"""What a report shows: plain records, whoever made the picks and whoever measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from foretune.predictor.compare import BAD_SLOWDOWN, Delivered, Score, delivered, score_picks

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Picks:
    """What one picker chose for the problems of a report; arrays of shape (problems,).

    Attributes
    ----------
    name : str
    times : array
        Measured time of the pick in milliseconds, infinite where none was measured.
    answered : array of bool
        Whether it chose at all.
    """

    name: str
    times: Floats
    answered: Flags


@dataclass(frozen=True)
class Layer:
    """A problem of a network that was tuned.

    Attributes
    ----------
    problem : str
    count : int
        How often the network has it.
    tuned_ms : float
        Best time that was measured.
    picked_ms : mapping
        Picker -> time of its pick; a picker without an answer is left out.
    at_least : collection of str
        Pickers whose pick was not measured, and whose time is a lower bound.
    search_ms : float
        What searching takes.
    unseen : bool
        Whether training left the shape out.
    accepted : bool
        Whether the model's pick may be used without measuring.
    """

    problem: str
    count: int
    tuned_ms: float
    picked_ms: Mapping[str, float]
    at_least: frozenset[str]
    search_ms: float
    unseen: bool
    accepted: bool


@dataclass(frozen=True)
class Network:
    """Layers of a network in one data type.

    Attributes
    ----------
    name, variant : str
        Such as "resnet50" and "FP16".
    problems : int
        Different problems that it has; those that were not tuned are not among the layers.
    layers : sequence of Layer
    """

    name: str
    variant: str
    problems: int
    layers: Sequence[Layer]

    def tuned_ms(self, picker: str = "") -> float:
        """Time of the best, once for each time the network has it.

        Parameters
        ----------
        picker : str, optional
            Only layers that this picker answers.
        """
        return sum(
            layer.count * layer.tuned_ms
            for layer in self.layers
            if not picker or picker in layer.picked_ms
        )

    def picked_ms(self, picker: str) -> float:
        """Time of a picker's picks over the layers that it answers."""
        return sum(layer.count * layer.picked_ms.get(picker, 0.0) for layer in self.layers)

    def answered(self, picker: str) -> int:
        """Layers that a picker answers."""
        return sum(picker in layer.picked_ms for layer in self.layers)

    def efficiency(self, picker: str) -> float:
        """Time of the best over time of the picks, over the layers that the picker answers.

        Examples
        --------
        >>> layer = Layer("1x1", 2, 3.0, {"model": 4.0}, frozenset(), 50.0, True, True)
        >>> Network("net", "FP32", 1, [layer]).efficiency("model")
        0.75
        """
        picked = self.picked_ms(picker)
        return self.tuned_ms(picker) / picked if picked else float("nan")

    @property
    def search_ms(self) -> float:
        """What searching takes, once for each problem."""
        return sum(layer.search_ms for layer in self.layers)


@dataclass(frozen=True)
class SearchTime:
    """What searching takes for the problems of a report, and what is left of it.

    Attributes
    ----------
    full_s : float
        Seconds of searching all problems.
    left_s : float
        Seconds of measuring the first few choices where the model's pick isn't accepted.
    basis : str
        How both were worked out, for people.
    """

    full_s: float
    left_s: float
    basis: str


@dataclass(frozen=True)
class WorstPick:
    """A pick that cost much, and why it was made.

    Attributes
    ----------
    problem : str
    features : mapping
        What the problem is like: name -> text.
    pick, best : str
        Candidates.
    pick_ms : float
        Measured time of the pick, or what it takes at least.
    is_at_least : bool
        Whether the pick was not measured.
    best_ms : float
    pick_predicted_ms, best_predicted_ms : float or None
        None where the model gave no time.
    score : float
        Probability of being good that the model gave its pick.
    accepted, unseen : bool
    reason : str
        Why the best was not picked, for people.
    """

    problem: str
    features: Mapping[str, str]
    pick: str
    best: str
    pick_ms: float
    is_at_least: bool
    best_ms: float
    pick_predicted_ms: float | None
    best_predicted_ms: float | None
    score: float
    accepted: bool
    unseen: bool
    reason: str

    @property
    def slowdown(self) -> float:
        """Time of the pick over that of the best."""
        return self.pick_ms / self.best_ms


@dataclass(frozen=True)
class ReportData:
    """One run of predicted against tuned.

    Attributes
    ----------
    title, subtitle : str
    facts : mapping
        What was compared, and how: name -> text.
    seen : str
        Which part of the shapes the model never saw, in a sentence.
    not_measured : str
        What it means that a pick has no time, such as "not listed".
    best : array of shape (problems,)
        Best time that was measured, in milliseconds.
    pickers : sequence of Picks
        The model first.
    default : str
        Picker that stands for what runs without tuning; "" if there is none.
    first_choices : array of shape (problems,)
        Best measured time among the model's first few choices.
    choices : int
        How many those are.
    score : array of shape (problems,)
        Probability of being good that the model gave its pick.
    sure : array of bool, shape (problems,)
        Whether the pick may be accepted at all, at some score.
    stratum : array of str, shape (problems,)
        What thresholds are chosen for apart, such as the direction.
    shape : array of shape (problems,)
        Equal for the problems of one shape.
    unseen : array of bool, shape (problems,)
    groups : mapping
        Name -> problems (flags) that are scored together, those that matter most first.
    accepted : mapping
        Stated risk -> problems (flags) whose pick is accepted.
    risk : float
        The stated risk that the report is about; one of `accepted`.
    search : SearchTime
    networks : sequence of Network
    networks_note : str
        Where the networks come from, for people.
    worst : sequence of WorstPick
        The worst first.

    Raises
    ------
    ValueError
        If these don't fit together.
    """

    title: str
    subtitle: str
    facts: Mapping[str, str]
    seen: str
    not_measured: str
    best: Floats
    pickers: Sequence[Picks]
    default: str
    first_choices: Floats
    choices: int
    score: Floats
    sure: Flags
    stratum: npt.NDArray[np.str_]
    shape: npt.NDArray[np.float64]
    unseen: Flags
    groups: Mapping[str, Flags]
    accepted: Mapping[float, Flags]
    risk: float
    search: SearchTime
    networks: Sequence[Network] = field(default=())
    networks_note: str = ""
    worst: Sequence[WorstPick] = field(default=())

    def __post_init__(self) -> None:
        sizes = {len(column) for column in self._columns()}
        if sizes != {len(self.best)} or not len(self.best):
            raise ValueError(f"expected the same number of problems, above 0, got {sorted(sizes)}")
        if not self.pickers or self.risk not in self.accepted:
            raise ValueError("expected a picker, and the problems accepted at the stated risk")
        if self.default and self.default not in [picks.name for picks in self.pickers]:
            raise ValueError(f"there is no picker {self.default!r}")

    def _columns(self) -> list[npt.NDArray[np.generic]]:
        return [
            self.best,
            self.first_choices,
            self.score,
            self.sure,
            self.stratum,
            self.shape,
            self.unseen,
            *(column for picks in self.pickers for column in (picks.times, picks.answered)),
            *self.groups.values(),
            *self.accepted.values(),
        ]

    @property
    def model(self) -> Picks:
        """The model's picks."""
        return self.pickers[0]

    @property
    def stated(self) -> str:
        """The stated risk, for people."""
        return f"{100 * self.risk:g}%"

    @property
    def has_default(self) -> bool:
        """Whether another picker stands for what runs without tuning."""
        return self.default not in ("", self.model.name)

    @cached_property
    def bad(self) -> Flags:
        """Picks of the model that are slower than 1.10 times the best, or have no time."""
        return np.asarray(self.model.times / self.best > BAD_SLOWDOWN)

    @cached_property
    def score_of_model(self) -> Score:
        """Scores of the model over all problems."""
        return score_picks(self.best, self.model.times, self.first_choices)

    def scores_of(self, picker: str) -> Score:
        """Scores of a picker over the problems that it answers."""
        (picks,) = (picks for picks in self.pickers if picks.name == picker)
        return score_picks(self.best[picks.answered], picks.times[picks.answered])

    def slowdowns(self, picks: Picks) -> Floats:
        """Slowdowns of a picker's answers; infinite where a pick has no time."""
        return np.asarray(picks.times[picks.answered] / self.best[picks.answered])

    def scores(self, group: str) -> dict[str, Score]:
        """Scores of each picker that answers some problem of a group."""
        rows = self.groups[group]
        found = {}
        for picks in self.pickers:
            kept = rows & picks.answered
            if kept.any():
                choices = self.first_choices[kept] if picks is self.model else None
                found[picks.name] = score_picks(self.best[kept], picks.times[kept], choices)
        return found

    def delivered(self, risk: float) -> Delivered:
        """Score accepted picks together with the measured first choices of the others."""
        return delivered(
            self.best,
            self.model.times,
            self.first_choices,
            self.accepted[risk],
            risk,
            self.shape,
        )

    @cached_property
    def strata(self) -> list[str]:
        """What thresholds are chosen for apart."""
        return list(dict.fromkeys(self.stratum.tolist()))

    def risk_curve(self, rows: Flags) -> tuple[Floats, Floats]:
        """Coverage and achieved risk of some problems as the lowest accepted score falls.

        Parameters
        ----------
        rows : array of bool, shape (problems,)

        Returns
        -------
        coverage, risk : array
            One point for each different score of a pick that may be accepted.
        """
        may = rows & self.sure
        score, bad = self.score[may], self.bad[may]
        order = np.argsort(-score, kind="stable")
        accepted = np.arange(1, len(order) + 1)
        # Picks of one score are accepted together.
        last = np.flatnonzero(np.append(np.diff(score[order]) != 0, True))[: len(order)]
        share_bad = np.cumsum(bad[order]) / accepted
        return accepted[last] / max(int(rows.sum()), 1), share_bad[last]

    def operating_point(self, rows: Flags, risk: float) -> tuple[float, float]:
        """Coverage and achieved risk of some problems at a stated risk."""
        accepted = self.accepted[risk] & rows
        achieved = float(self.bad[accepted].mean()) if accepted.any() else 0.0
        return float(accepted.sum() / max(int(rows.sum()), 1)), achieved

    def lowest_accepted(self, rows: Flags, risk: float) -> float | None:
        """Lowest score accepted among some problems at a stated risk; None if none is."""
        accepted = self.accepted[risk] & rows
        return float(self.score[accepted].min()) if accepted.any() else None
