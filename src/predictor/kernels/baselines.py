"""Pickers that need no model, for comparison: the default, the usual winner, the nearest problem.

Each gives its choices of candidates' keys in order; the first that was measured counts, so that a
picker that learns from one dataset isn't punished for what another didn't try.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from foretune.predictor.default_candidate import default_candidate
from foretune.predictor.kernels.dataset import CandidateTrials
from foretune.predictor.kernels.features import ProblemView
from foretune.predictor.kernels.neighbours import coordinates

#: Candidates of a problem that its neighbour takes over.
_OF_NEIGHBOUR = 32


class Picker(Protocol):
    """Chooses candidates for the tasks of a dataset."""

    def fit(
        self, trials: CandidateTrials, tasks: np.ndarray[tuple[int], np.dtype[np.intp]]
    ) -> None:
        """Learn from some tasks of a dataset."""
        ...

    def choices(self, trials: CandidateTrials, task: int) -> Iterator[str]:
        """Give keys of candidates for a task, the best first."""
        ...


class DefaultPicker:
    """The default config of the first solver that applies, in the order that foretune ships."""

    def fit(
        self, trials: CandidateTrials, tasks: np.ndarray[tuple[int], np.dtype[np.intp]]
    ) -> None:
        """Learn nothing."""

    def choices(self, trials: CandidateTrials, task: int) -> Iterator[str]:
        """Give the one candidate."""
        yield default_candidate(*trials.tasks[task]).key


class UsualWinner:
    """What won most often for problems of the same direction, type and layout."""

    def fit(
        self, trials: CandidateTrials, tasks: np.ndarray[tuple[int], np.dtype[np.intp]]
    ) -> None:
        """Count how often candidates win, half a win for those within 1.05 of the best."""
        keys = trials.keys()
        self._wins: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
        chosen = set(tasks.tolist())
        for row in np.flatnonzero(trials.measured).tolist():
            task = int(trials.task[row])
            slowdown = trials.time_ms[row] / trials.best[task]
            if task in chosen and slowdown <= 1.05:
                wins = self._wins[_kind(trials, task)]
                wins[keys[row]] = wins.get(keys[row], 0.0) + (1.0 if slowdown == 1 else 0.5)

    def choices(self, trials: CandidateTrials, task: int) -> Iterator[str]:
        """Give candidates by their wins."""
        wins = self._wins[_kind(trials, task)]
        yield from sorted(wins, key=lambda key: (-wins[key], key))


def _kind(trials: CandidateTrials, task: int) -> tuple[str, str, str]:
    problem = trials.tasks[task][0]
    return problem.direction, problem.dtype, problem.layout


class NearestProblem:
    """What was fastest for the problems that are most alike."""

    def fit(
        self, trials: CandidateTrials, tasks: np.ndarray[tuple[int], np.dtype[np.intp]]
    ) -> None:
        """Remember the problems with their fastest candidates."""
        keys = trials.keys()
        self._places = np.stack([_place(trials, task) for task in tasks.tolist()])
        self._fastest: list[list[str]] = []
        for task in tasks.tolist():
            rows = np.flatnonzero((trials.task == task) & trials.measured)
            order = rows[np.argsort(trials.time_ms[rows], kind="stable")]
            self._fastest.append([keys[row] for row in order[:_OF_NEIGHBOUR].tolist()])

    def choices(self, trials: CandidateTrials, task: int) -> Iterator[str]:
        """Give the nearest problem's candidates, then those of the next."""
        distance = np.abs(self._places - _place(trials, task)).sum(axis=1)
        for place in np.argsort(distance, kind="stable").tolist():
            yield from self._fastest[place]


def _place(trials: CandidateTrials, task: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    problem, device = trials.tasks[task]
    return coordinates(ProblemView(problem, device).row)


#: Name -> picker, in the order of tables.
PICKERS: dict[str, type[Picker]] = {
    "default": DefaultPicker,
    "usual winner": UsualWinner,
    "nearest problem": NearestProblem,
}
