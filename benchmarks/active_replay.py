"""How soon active sampling finds fast configs, beside random choice and the usual search.

Replays recorded trials: whoever chooses is told what was measured then. All start from the same
configs, and the seed of a repeat decides chance.

    python benchmarks/active_replay.py hub ../shared/benchmark-hub/convolution_milo_MI250X.json.gz
    python benchmarks/active_replay.py tuned data/kernels/sm_90/conv.parquet --figure curve.svg

`hub` replays an exhaustive run of one kernel and one problem: ten configs drawn at random are told
first. `tuned` replays what `foretune tune` recorded, all problems together and in rounds as there:
the default configs come first. A curve gives the best time found over the best recorded, as a
geometric mean over problems and repeats, after so many trials of a problem and after so many
seconds of building and measuring. Seconds are those recorded (`hub`), or, for all problems
together, what each kernel that nobody built before and each trial took in a tuning run on an H200
with 16 processors (`tuned`). Needs foretune[train]; figures need matplotlib.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from foretune.errors import InputError
from foretune.kernels.problem import Problem
from foretune.kernels.problem_text import parse_problem
from foretune.kernels.registry import solver as find_solver
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.search import ConfigSearch
from foretune.kernels.solver import Candidate, KernelSource, Launch, Plan, Solver
from foretune.kernels.space import Config, Space, Tunable
from foretune.kernels.task import Chooser, Pace, Task
from foretune.kernels.visiting import kernels_of
from foretune.predictor.active import ActiveChooser
from foretune.predictor.benchmark_hub import read_benchmark_hub

Floats = npt.NDArray[np.float64]
#: Trials of a problem after which the curve is given.
MARKS = (10, 15, 20, 30, 40, 50, 75, 100, 150, 200)
#: Seconds of building and measuring after which it is given too.
SECONDS = (30, 60, 120, 240, 480, 960)
_START = 10
#: Seconds of a kernel and of a trial on an H200, by the datasheet.
_BUILD_SECONDS, _TRIAL_SECONDS = 0.09, 0.025
_BATCHES = (8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Outcome:
    """What became of a config then; the time is None if it failed. Seconds are for each kernel."""

    time_ms: float | None
    build_seconds: float
    trial_seconds: float


@dataclass(frozen=True)
class RecordedProblem:
    """A problem of which nothing but its records matters."""

    name: str
    operation: ClassVar[str] = "recorded"

    @property
    def flops(self) -> int:
        """Nothing is known of it."""
        return 1


class RecordedSpace(Space):
    """The configs of a space that were recorded, in random order where it doesn't matter."""

    def __init__(self, tunables: tuple[Tunable, ...], configs: Sequence[Config]) -> None:
        super().__init__(tunables)
        self.__dict__["recorded"] = dict.fromkeys(configs)

    def __iter__(self) -> Iterator[Config]:
        return iter(self.__dict__["recorded"])

    @property
    def unconstrained_size(self) -> int:
        """Small enough to be listed."""
        return len(self.__dict__["recorded"])

    def why_not(self, config: Mapping[str, int]) -> str | None:
        """Say whether a config was recorded."""
        return None if Config(config) in self.__dict__["recorded"] else "was not recorded"


class RecordedSolver(Solver[Any]):
    """A kernel that is known by its records alone; each config is a kernel of its own."""

    def __init__(self, name: str, configs: Space) -> None:
        self.id = name  # type: ignore[misc]
        self.configs = configs

    def why_not(self, problem: Any, device: DeviceProperties) -> str | None:  # noqa: ARG002
        """Can always compute it."""
        return None

    def space(self, problem: Any, device: DeviceProperties) -> Space:  # noqa: ARG002
        """Give the recorded configs."""
        return self.configs

    def plan(self, problem: Any, config: Config, alpha: float = 1.0, beta: float = 0.0) -> Plan:  # noqa: ARG002
        """Launch the one kernel of a config."""
        kernel = KernelSource("recorded.cl", self.id, tuple(config.items()))
        return Plan((Launch(kernel, (1, 1, 1), ()),))


@dataclass(frozen=True)
class Recorded:
    """The records of a problem."""

    problem: Problem
    text: str
    spaces: dict[Solver[Any], Space]
    outcomes: dict[Solver[Any], dict[Config, Outcome]]
    #: Told before anything is chosen; by default nothing, so that the defaults come first.
    start: tuple[Candidate[Any], ...] = ()

    @property
    def best_ms(self) -> float:
        """Best time recorded."""
        times = (o.time_ms for of in self.outcomes.values() for o in of.values())
        return min(time for time in times if time is not None)

    def __len__(self) -> int:
        return sum(map(len, self.outcomes.values()))


class RandomChooser:
    """Draws untried candidates of all solvers."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choose(self, task: Task, count: int, pace: Pace) -> list[Candidate[Any]]:  # noqa: ARG002
        """Give candidates in random order."""
        everything = [
            Candidate(solver, config)
            for solver, search in task.searches.items()
            for config in search.untried(2**31)
        ]
        return self._random.sample(everything, min(count, len(everything)))


def read_hub(path: str, seed: int) -> Recorded:
    """Read an exhaustive run, and draw the configs that are told first."""
    run = read_benchmark_hub(path)
    outcomes = {
        config: Outcome(None if np.isnan(time) else time, build, trial)
        for config, time, build, trial in zip(
            run.configs(),
            run.table["time_ms"].tolist(),
            run.table["build_seconds"].tolist(),
            run.table["measure_seconds"].tolist(),
            strict=True,
        )
    }
    space = RecordedSpace(run.space.tunables, list(outcomes))
    solver = RecordedSolver(run.kernel, space)
    drawn = random.Random(seed).sample(list(outcomes), _START)
    return Recorded(
        RecordedProblem(run.kernel),
        run.kernel,
        {solver: space},
        {solver: outcomes},
        tuple(Candidate(solver, config) for config in drawn),
    )


def read_tuned(path: str, least: int, every: int) -> list[Recorded]:
    """Read what `foretune tune` recorded, of one of so many problems with enough trials."""
    table = pd.read_parquet(path)
    names = set(DeviceProperties.__dataclass_fields__)
    found = []
    enough = 0
    for text, rows in table[table["config"].notna()].groupby("problem", observed=True, sort=True):
        rows = rows[rows["status"] != "not applicable"]
        if len(rows) < least:
            continue
        enough += 1
        if enough % every:
            continue
        problem = parse_problem(str(text))
        facts = {str(name): value for name, value in rows.iloc[0].items() if name in names}
        device = DeviceProperties(
            **{k: getattr(v, "item", lambda v=v: v)() for k, v in facts.items()}
        )
        spaces: dict[Solver[Any], Space] = {}
        outcomes: dict[Solver[Any], dict[Config, Outcome]] = {}
        for name, own in rows.groupby("solver", observed=True, sort=True):
            solver = find_solver(problem.operation, str(name))
            space = solver.space(problem, device)
            told = {}
            for config, status, time in zip(
                own["config"], own["status"], own["time_ms"], strict=True
            ):
                try:
                    parsed = space.parse(str(config))
                except InputError:
                    continue  # of an older state of the space
                ms = float(time) if status in ("measured", "too slow") else None
                told[parsed] = Outcome(ms, _BUILD_SECONDS, _TRIAL_SECONDS)
            if told:
                spaces[solver] = RecordedSpace(space.tunables, list(told))
                outcomes[solver] = told
        found.append(Recorded(problem, str(text), spaces, outcomes))
    return found


@dataclass(frozen=True)
class Replay:
    """Of one problem: seconds and best time so far after each trial."""

    seconds: Floats
    best: Floats


class Replaying:
    """A run over recorded problems under way, with the time that it would take."""

    def __init__(self, recorded: Sequence[Recorded], chooser: Chooser | None, seed: int) -> None:
        self._recorded = recorded
        self._tasks = []
        self._logs: list[list[tuple[float, float]]] = [[] for _ in recorded]
        self._built: set[KernelSource] = set()
        self._building = self._trying = 0.0
        self._tried = 0
        for record, log in zip(recorded, self._logs, strict=True):
            searches = {s: ConfigSearch(space, seed=seed) for s, space in record.spaces.items()}
            task = Task(record.problem, record.text, searches, None, chooser)
            self._tasks.append(task)
            for candidate in record.start:
                searches[candidate.solver].claim(candidate.config)
                task.given[candidate.solver.id] += 1
                self._tell(record, task, candidate, log)

    def run(self, most: int) -> list[Replay]:
        """Visit the problems in rounds as `foretune tune` does, until all have so many trials."""
        for batch in (*_BATCHES, *[_BATCHES[-1]] * 20):
            for record, task, log in zip(self._recorded, self._tasks, self._logs, strict=True):
                if len(log) < most:
                    pace = Pace(
                        self._building / max(1, len(self._built)),
                        self._trying / max(1, self._tried),
                    )
                    for candidate in task.propose(batch, pace):
                        self._tell(record, task, candidate, log)
        return [Replay(*np.array(log).T) for log in self._logs]

    def _tell(
        self,
        record: Recorded,
        task: Task,
        candidate: Candidate[Any],
        log: list[tuple[float, float]],
    ) -> None:
        outcome = record.outcomes[candidate.solver][candidate.config]
        task.searches[candidate.solver].tell(candidate.config, outcome.time_ms)
        if outcome.time_ms is not None:
            task.learn(candidate, outcome.time_ms, 1)
        kernels = set(kernels_of(record.problem, candidate)) - self._built
        self._built |= kernels
        self._tried += 1
        self._building += outcome.build_seconds * len(kernels)
        self._trying += outcome.trial_seconds
        best = log[-1][1] if log else inf
        time = inf if outcome.time_ms is None else outcome.time_ms
        log.append((self._building + self._trying, min(best, time)))


WAYS: dict[str, Callable[[int], Chooser | None]] = {
    "random": RandomChooser,
    "search": lambda seed: None,  # noqa: ARG005
    "active": lambda seed: ActiveChooser(seed=seed),
}


def at_trials(recorded: Sequence[Recorded], replays: Sequence[Replay]) -> Floats:
    """Best found over best recorded, shape (problems, MARKS)."""
    rows = []
    for record, done in zip(recorded, replays, strict=True):
        places = [min(mark, len(done.best)) - 1 for mark in MARKS]
        rows.append(done.best[places] / record.best_ms)
    return np.array(rows)


def at_seconds(recorded: Sequence[Recorded], replays: Sequence[Replay]) -> Floats:
    """As `at_trials`, shape (problems, SECONDS)."""
    rows = []
    for record, done in zip(recorded, replays, strict=True):
        places = np.searchsorted(done.seconds, SECONDS, side="right") - 1
        rows.append(np.where(places < 0, np.nan, done.best[places]) / record.best_ms)
    return np.array(rows)


def markdown(label: str, marks: Sequence[float], curves: Mapping[str, list[Floats]]) -> str:
    """Geometric means over repeats and problems as a table; of what isn't reached, nothing."""
    shown = [f"{mark:g}" for mark in marks]
    lines = [f"| {label} | {' | '.join(shown)} |", "|---" * (1 + len(marks)) + "|"]
    for name, found in curves.items():
        mean = np.exp(np.log(np.stack(found)).mean(axis=(0, 1)))
        lines.append(
            f"| {name} | {' | '.join(f'{value:.3f}' for value in mean)} |".replace("nan", "")
        )
    return "\n".join(lines)


def draw(path: str, label: str, marks: Sequence[float], curves: Mapping[str, list[Floats]]) -> None:
    """Draw the curves, with the range of the repeats."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, found in curves.items():
        repeats = np.exp(np.log(np.stack(found)).mean(axis=1))
        middle = np.exp(np.log(repeats).mean(axis=0))
        (line,) = axes.plot(marks, middle, label=name)
        axes.fill_between(
            marks, repeats.min(axis=0), repeats.max(axis=0), color=line.get_color(), alpha=0.15
        )
    axes.set(xscale="log", xlabel=label, ylabel="best found / best recorded")
    axes.legend()
    figure.savefig(path)


def main() -> None:
    """Replay, and print the curves as Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=["hub", "tuned"])
    parser.add_argument("file")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--every", type=int, default=1, help="one of so many problems (tuned)")
    parser.add_argument("--least", type=int, default=60, help="trials of a problem (tuned)")
    parser.add_argument("--figure", help="SVG or PNG file")
    options = parser.parse_args()
    records = (
        [] if options.kind == "hub" else read_tuned(options.file, options.least, options.every)
    )
    trials: dict[str, list[Floats]] = {name: [] for name in WAYS}
    seconds: dict[str, list[Floats]] = {name: [] for name in WAYS}
    for repeat in range(options.repeats):
        recorded = records or [read_hub(options.file, repeat)]
        for name, way in WAYS.items():
            done = Replaying(recorded, way(repeat), repeat).run(MARKS[-1])
            trials[name].append(at_trials(recorded, done))
            seconds[name].append(at_seconds(recorded, done))
        print(f"repeat {repeat + 1} of {options.repeats}", file=sys.stderr, flush=True)
    if records:
        print(f"{len(records)} problems, {sum(map(len, records))} trials")
    print(markdown("trials", MARKS, trials))
    print(markdown("seconds", SECONDS, seconds))
    if options.figure:
        draw(options.figure, "trials of a problem", MARKS, trials)


if __name__ == "__main__":
    main()
