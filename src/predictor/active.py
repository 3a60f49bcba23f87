"""Chooses what a tuning run measures next, so that a time budget buys the most.

Each solver has a forest over all problems under way, which predicts how much a config gains over
the solver's own default on a problem. Trees disagree where little is known. What is tried next
promises the largest improvement on the problem's fastest time for each second that trying it
takes: building kernels that nobody built yet, and measuring. How much of the trees' spread counts
as promise is drawn anew for each place of a batch, so that a batch both follows the forest and
looks around. Needs the extra `train`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from itertools import islice
from math import inf, log, log2
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import RandomForestRegressor

from foretune.errors import InputError
from foretune.kernels.problem import Problem
from foretune.kernels.search import ConfigSearch
from foretune.kernels.solver import Candidate, KernelSource, Solver
from foretune.kernels.space import Config
from foretune.kernels.task import Pace, Task
from foretune.kernels.visiting import kernels_of
from foretune.predictor.candidates import RankedCandidate

Floats = npt.NDArray[np.float64]

#: Configs of a solver that are looked at for each choice; with many problems under way fewer, so
#: that choosing takes little beside measuring.
_POOL, _LEAST_POOL = 1024, 256
#: Rows that a forest is grown on at most, for the same reason; drawn where there are more.
_MOST_ROWS = 4000
#: A solver's forest needs so many times; until then its configs come in the search's order.
_LEAST_ROWS = 6
#: Configs that a solver without a forest gets on a problem.
_FAIR_TRIES = 4
#: A solver without a forest whose default is so much slower than the fastest gets none.
_HOPELESS = 8.0
#: A forest is grown anew when its rows have grown by this.
_GROWTH = 1.2
#: A batch is a quarter of what was tried before, so that there is something to learn from.
_BATCH_SHARE, _LEAST_BATCH = 0.25, 8
_TREES = 48
#: Trees agree where they shouldn't: on what all of them have seen alike.
_LEAST_SPREAD = 0.02
#: Runs of a candidate that a trial takes at least: to check it, to warm up and to time it.
_RUNS = 3


@dataclass
class _Forest:
    """What is known of a solver: the forest, and the rows that it was grown on."""

    rows: int
    trees: RandomForestRegressor

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Mean and spread of the trees' answers."""
        single = features.astype(np.float32)
        answers = np.stack([tree.tree_.predict(single)[:, 0] for tree in self.trees.estimators_])
        return answers.mean(axis=0), np.maximum(answers.std(axis=0), _LEAST_SPREAD)


@dataclass
class _Known:
    """A task with what choosing remembers of it."""

    task: Task
    numbers: Floats
    is_prior_asked: bool = False
    #: Of each solver: configs whose kernels are known to be built.
    seen: Counter[str] = field(default_factory=Counter)


class ActiveChooser:
    """Learns while a run tunes, and chooses what it tries next.

    Parameters
    ----------
    prior : callable, optional
        Takes a problem and a count, and gives the candidates that a model ranks first: they are
        tried first, after the defaults.
    seed : int, optional

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> from foretune.kernels.registry import solver
    >>> from foretune.kernels.runtime.properties import DeviceProperties
    >>> device = DeviceProperties("opencl", "a processor", "cpu", 4, 1, 65536, 1024)
    >>> problem = ConvProblem("F", 1, 64, (28, 28), 64, (3, 3))
    >>> direct = solver("conv", "ConvDirect")
    >>> search = ConfigSearch(direct.space(problem, device))
    >>> task = Task(problem, "", {direct: search}, None, ActiveChooser())
    >>> for _ in range(4):
    ...     for candidate in task.propose(8):
    ...         search.tell(candidate.config, 1.0 + candidate.config["TILE_K"])
    >>> search.best_ms == 1.0 + min(search.space.tunables[2].values)
    True
    """

    def __init__(
        self,
        prior: Callable[[Problem, int], Iterable[RankedCandidate]] | None = None,
        seed: int = 0,
    ) -> None:
        self._prior = prior
        self._random = np.random.default_rng(seed)
        self._seed = seed
        self._known: dict[int, _Known] = {}
        self._forests: dict[str, _Forest] = {}
        self._built: set[KernelSource] = set()
        self._codes: dict[str, float] = {}
        #: Devices choose for problems of their own, and learn from those of all.
        self._lock = Lock()

    def choose(self, task: Task, count: int, pace: Pace) -> list[Candidate[Any]]:
        """Give untried candidates, at most `count`, the most promising first."""
        with self._lock:
            known = self._known.get(id(task))
            if known is None:
                known = self._known[id(task)] = _Known(task, self._numbers(task.problem))
            count = min(count, max(_LEAST_BATCH, int(_BATCH_SHARE * task.tried)))
            self._note_built(known)
            chosen = self._from_prior(known, count)
            taken = {candidate.key for candidate in chosen}
            for candidate in self._best(known, count, pace):
                if len(chosen) < count and candidate.key not in taken:
                    chosen.append(candidate)
            for candidate in chosen:
                self._built.update(kernels_of(task.problem, candidate))
            return chosen

    def _note_built(self, known: _Known) -> None:
        """Take note of the kernels that were built for others' proposals."""
        for solver, search in known.task.searches.items():
            for config in islice(search.times, known.seen[solver.id], None):
                self._built.update(kernels_of(known.task.problem, Candidate(solver, config)))
            known.seen[solver.id] = len(search.times)

    def _from_prior(self, known: _Known, count: int) -> list[Candidate[Any]]:
        """Give what the prior ranks first, once for each problem."""
        task = known.task
        if known.is_prior_asked or self._prior is None:
            return []
        known.is_prior_asked = True
        by_id = {solver.id: solver for solver in task.searches}
        found: list[Candidate[Any]] = []
        for ranked in self._prior(task.problem, count):
            solver = by_id.get(ranked.solver)
            if solver is not None:
                with suppress(InputError):  # a config of another state of the space
                    config = task.searches[solver].space.parse(ranked.config)
                    if not task.searches[solver].is_proposed(config):
                        found.append(Candidate(solver, config))
        return found[:count]

    def _best(self, known: _Known, count: int, pace: Pace) -> list[Candidate[Any]]:
        """Order untried candidates by expected improvement for each second."""
        task = known.task
        best = min((s.best_ms for s in task.searches.values() if s.best_ms), default=inf)
        candidates: list[Candidate[Any]] = []
        means, spreads = [], []
        fair: list[Candidate[Any]] = []
        pool = max(_LEAST_POOL, _POOL // len(self._known))
        for solver, search in task.searches.items():
            forest = self._forest(solver)
            if forest is None:
                is_near = search.best_ms is None or search.best_ms < _HOPELESS * best
                wanted = _FAIR_TRIES - task.given[solver.id] if is_near else 0
                fair += [Candidate(solver, config) for config in search.untried(max(0, wanted))]
                continue
            configs = search.untried(pool)
            if not configs or task.room(solver) <= 0:
                continue
            mean, spread = forest.predict(self._features(known, search, best, configs))
            candidates += [Candidate(solver, config) for config in configs]
            means.append(mean + log(_reference(search, best)))
            spreads.append(spread)
        if not candidates or best == inf:
            return fair[:count]
        order = self._order(
            task, candidates, np.concatenate(means), np.concatenate(spreads), best, count, pace
        )
        return [*fair[:count], *(candidates[place] for place in order)]

    def _order(
        self,
        task: Task,
        candidates: Sequence[Candidate[Any]],
        mean: Floats,
        spread: Floats,
        best: float,
        count: int,
        pace: Pace,
    ) -> list[int]:
        """Places of the candidates to try, at most `count`, the most promising first."""
        # What building takes is looked into only for those that may be chosen.
        most = 4 * count
        near = np.unique([np.argsort(mean)[:most], np.argsort(mean - 2 * spread)[:most]])
        mean, spread = mean[near], spread[near]
        seconds = pace.trial_seconds + _RUNS * np.exp(mean) / 1e3
        if pace.build_seconds > 0:
            for row, place in enumerate(near):
                kernels = set(kernels_of(task.problem, candidates[place]))
                seconds[row] += pace.build_seconds * len(kernels - self._built)
        order: list[int] = []
        for daring in self._random.exponential(size=min(count, len(near))):
            gain = log(best) - (mean - daring * spread)
            # Of those that promise none, dear ones come last too.
            worth = np.where(gain > 0, gain / seconds, gain * seconds)
            row = int(worth.argmax())
            order.append(int(near[row]))
            mean[row] = inf
        return order

    def _forest(self, solver: Solver[Any]) -> _Forest | None:
        """Give a solver's forest, grown anew if much was learnt since."""
        rows = 0
        for known in self._known.values():
            search = known.task.searches.get(solver)
            rows += search.tried if search is not None else 0
        forest = self._forests.get(solver.id)
        if forest is not None and rows < _GROWTH * forest.rows:
            return forest
        if rows < _LEAST_ROWS:
            return None
        features, targets = [], []
        for known in self._known.values():
            search = known.task.searches.get(solver)
            if search is None or not search.times:
                continue
            best = min(s.best_ms for s in known.task.searches.values() if s.best_ms)
            reference = _reference(search, best)
            gains = [log(time / reference) for time in search.times.values()]
            features.append(self._features(known, search, best, search.times))
            targets += gains
            if search.failed:
                features.append(self._features(known, search, best, search.failed))
                targets += [max(gains)] * len(search.failed)
        if len(targets) < _LEAST_ROWS:
            return None
        table, answers = np.concatenate(features), np.array(targets)
        if len(answers) > _MOST_ROWS:
            drawn = self._random.choice(len(answers), _MOST_ROWS, replace=False)
            table, answers = table[drawn], answers[drawn]
        trees = RandomForestRegressor(_TREES, max_features=0.7, random_state=self._seed, n_jobs=1)
        trees.fit(table, answers)
        forest = self._forests[solver.id] = _Forest(rows, trees)
        return forest

    def _features(
        self, known: _Known, search: ConfigSearch, best: float, configs: Iterable[Config]
    ) -> Floats:
        encoded = np.array([search.space.encode(config) for config in configs], np.float64)
        lag = log(_reference(search, best) / best)
        rest = np.append(known.numbers, lag)
        return np.hstack([encoded, np.tile(rest, (len(encoded), 1))])

    def _numbers(self, problem: Problem) -> Floats:
        """Turn the fields of a problem of any operation into numbers."""
        described: Any = problem
        numbers: list[float] = []
        for part in fields(described):
            value = getattr(problem, part.name)
            if isinstance(value, tuple):
                # The last axes stand at the same place whatever the dimensions are.
                numbers += ([0.0] * 3 + [log2(1 + abs(size)) for size in value])[-3:]
            elif isinstance(value, int):
                numbers.append(log2(1 + abs(value)))
            else:
                numbers.append(self._codes.setdefault(str(value), float(len(self._codes))))
        numbers.append(log2(1 + problem.flops))
        return np.array(numbers)


def _reference(search: ConfigSearch, best: float) -> float:
    """Time that a solver's gains on a problem are told from: its default's, if there is one."""
    default = search.times.get(search.space.default)
    if default is not None:
        return default
    return float(np.median(list(search.times.values()))) if search.times else best
