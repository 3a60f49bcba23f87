"""Scores foretune, AMD's nets and simple pickers on a find-db. Needs the extra `train`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.errors import InputError
from foretune.miopen.baselines.hand_rules import HandRules
from foretune.miopen.baselines.nearest_neighbour import NearestNeighbour
from foretune.miopen.baselines.records import Baseline
from foretune.miopen.baselines.tunanet import TunaNet
from foretune.miopen.baselines.usual_winner import UsualWinner
from foretune.miopen.config_comparison import compare_configs
from foretune.miopen.config_ranking import model_name
from foretune.miopen.dataset import cached_table, read_find_table
from foretune.miopen.keys import format_find_key, parse_find_key
from foretune.miopen.learning import group_rows, learning_parts, restrict
from foretune.miopen.names import parse_arch, parse_database_name, usual_compute_units
from foretune.miopen.networks import Networks
from foretune.miopen.predictor import naive_flags, runnable_flags, shipped_models
from foretune.miopen.solvers import runnable
from foretune.predictor.acceptance import RISKS, Acceptance, check_risk, to_bits
from foretune.predictor.bundle import RankingBundle
from foretune.predictor.compare import Score, score_picks
from foretune.predictor.dataset import RankingData
from foretune.predictor.evaluate import Outcomes, evaluate
from foretune.predictor.split import part_of

PARTS = {
    "test": ("test",),
    "calibrate": ("calibrate",),
    "unseen": ("calibrate", "test"),
    "all": ("train", "calibrate", "test"),
}
_WORST = 10
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Progress = Callable[[str, int, int], None]
Table = tuple[str, list[str], list[list[str]]]


@dataclass(frozen=True)
class ComparisonReport:
    """How pickers did on a find-db, and rankings of configs on the perf-db beside it.

    Attributes
    ----------
    scores : dict
        Group of shapes -> picker -> scores. One group holds the problems that TunaNet
        answers.
    accepting : list of dict
        foretune at each calibrated risk: coverage, achieved risk, share measured, slowdown
        delivered (accepted picks, and the best of the top three of the others).
    worst : list of dict
        foretune's worst picks among the listed.
    configs : list of dict
        Fields of a `ConfigScores` for each solver, direction and data type of the perf-db, on
        shapes of the part that training never saw. Empty without a perf-db of the device.
    """

    find_db: str
    arch: str
    compute_units: int
    part: str
    miopen: str
    risk: float
    left_out: dict[str, int]
    scores: dict[str, dict[str, Score]]
    accepting: list[dict[str, Any]]
    worst: list[dict[str, Any]]
    configs: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Give the report for JSON."""
        return {
            **self.__dict__,
            "scores": {
                group: {picker: score.to_dict() for picker, score in pickers.items()}
                for group, pickers in self.scores.items()
            },
        }

    def tables(self) -> Iterable[Table]:
        """Give the report as titled tables: title, headers and rows."""
        headers = (
            "picker,problems,top-1,within 2%,not listed,slowdown,mean eff.,P10 eff.,P1 eff.,"
            ">1.1x,>2x,top-3 measured"
        ).split(",")
        for group, pickers in self.scores.items():
            rows = [[name, *_cells(score)] for name, score in pickers.items() if score.problems]
            if rows:
                yield group, headers, rows
        yield (
            "foretune, accepting (all shapes); achieved risk by shape, as promised, and by record",
            ["stated risk", "coverage", "by shape", "by record", "measured", "slowdown delivered"],
            [
                [
                    f"{row['stated_risk']:.0%}",
                    f"{row['coverage']:.1%}",
                    f"{row['risk_by_shape']:.1%}",
                    f"{row['risk']:.1%}",
                    f"{row['measured']:.1%}",
                    f"{row['slowdown']:.4f}",
                ]
                for row in self.accepting
            ],
        )
        yield (
            "foretune's worst picks",
            ["problem", "pick", "best", "slowdown", f"accepted at {self.risk:g}"],
            [
                [
                    row["problem"],
                    row["pick"],
                    row["best"],
                    f"{row['slowdown']:.2f}",
                    "yes" if row["accepted"] else "no",
                ]
                for row in self.worst
            ],
        )
        if self.configs:
            part = "shapes that training never saw" if self.part == "all" else self.part
            yield (
                f"tuning parameters ({part})",
                (
                    "solver,type,problems,configs,top-1,top-5,top-10,parameters,usual top-1,"
                    "net top-1,net parameters"
                ).split(","),
                [_config_cells(row) for row in self.configs],
            )


def _cells(score: Score) -> list[str]:
    shares = "{:.1%}".format
    return [
        f"{score.problems}",
        shares(score.top1),
        shares(score.top1_within_2pct),
        shares(score.not_listed),
        f"{score.slowdown:.4f}",
        f"{score.mean_efficiency:.3f}",
        f"{score.p10_efficiency:.3f}",
        f"{score.p1_efficiency:.3f}",
        shares(score.above_1_1x),
        f"{score.above_2x:.2%}",
        "" if score.top3_slowdown is None else f"{score.top3_slowdown:.4f}",
    ]


def _config_cells(row: Mapping[str, Any]) -> list[str]:
    shares = "top_1 top_5 top_10 parameters usual_top_1 net_top_1 net_parameters".split()
    return [
        model_name(row["solver"], row["direction"]),
        row["dtype"],
        f"{row['problems']}",
        f"{row['configs']}",
        *("" if row[name] is None else f"{row[name]:.1%}" for name in shares),
    ]


@dataclass(frozen=True)
class Asked:
    """foretune's answers for the records of one direction; arrays of shape (problems,).

    Attributes
    ----------
    outcomes : Outcomes
    picked : list of str
        Its picks.
    accepted : dict
        Stated risk -> which picks are accepted.
    choices_ms : array
        Sum of the times of its first three choices; one that isn't listed counts as the slowest
        that is.
    """

    outcomes: Outcomes
    picked: list[str]
    accepted: dict[float, Flags]
    choices_ms: Floats


@dataclass(frozen=True)
class Answers:
    """What everyone picked for some records.

    Attributes
    ----------
    parts : dict
        Direction -> records, of what the release runs.
    asked : dict
        Direction -> foretune's answers.
    picks : dict
        Other picker -> its picks for the records of all directions, one direction after the other;
        None where it has no answer.
    """

    parts: dict[str, RankingData]
    asked: dict[str, Asked]
    picks: dict[str, list[str | None]]

    def picked_ms(self) -> dict[str, Floats]:
        """Give listed times of everyone's picks, infinite for the others; foretune first."""
        times = {"foretune": np.concatenate([a.outcomes.picked for a in self.asked.values()])}
        return times | {name: _times_of(self.parts, picks) for name, picks in self.picks.items()}

    def answered(self) -> dict[str, Flags]:
        """Tell which problems everyone has an answer for; foretune first."""
        flags = {"foretune": np.ones(sum(map(len, self.parts.values())), bool)}
        return flags | {
            name: np.array([pick is not None for pick in picks], bool)
            for name, picks in self.picks.items()
        }


@dataclass(frozen=True)
class MIOpenComparison:
    """Everyone's answers for the records of a find-db, before they are scored.

    Attributes
    ----------
    find_db, arch, compute_units, part, miopen, risk, left_out, configs
        As in `ComparisonReport`.
    bundle : RankingBundle
        The model that answered.
    answers : Answers
        For the records of the part.
    networks : mapping
        Network -> its problems, counted.
    network_answers : Answers
        For the records of the networks' problems, whatever their part.
    """

    find_db: str
    arch: str
    compute_units: int
    part: str
    miopen: str
    risk: float
    left_out: dict[str, int]
    bundle: RankingBundle
    answers: Answers
    networks: Networks
    network_answers: Answers
    configs: list[dict[str, Any]]

    @cached_property
    def report(self) -> ComparisonReport:
        """Everyone's scores."""
        return ComparisonReport(
            self.find_db,
            self.arch,
            self.compute_units,
            self.part,
            self.miopen,
            self.risk,
            self.left_out,
            _scores(self.answers),
            _accepting(self.answers.asked),
            _worst(self.answers.parts, self.answers.asked, self.risk),
            self.configs,
        )


def compare_miopen(
    find_db: str | os.PathLike[str],
    arch: str,
    compute_units: int | None = None,
    *,
    db: str | os.PathLike[str] | None = None,
    part: str = "test",
    miopen: str = "any",
    risk: float = 0.05,
    models: str | os.PathLike[str] | None = None,
    networks: Networks | None = None,
    on_progress: Progress | None = None,
) -> MIOpenComparison:
    """Ask pickers about what a find-db lists.

    Parameters
    ----------
    find_db : path-like
    arch : str
    compute_units : int, optional
        Default: what the file's name says, else the arch's usual count.
    db : path-like, optional
        Folder of databases and nets: TunaNet is read from it, the simple pickers learn from its
        training shapes, and the rankings of configs are scored on its perf-db. Without it
        foretune stands alone.
    part : {'test', 'calibrate', 'unseen', 'all'}
        Shapes to score; "unseen" is all that training did not see. Configs are never scored on
        what was learnt from: "all" is "unseen" for them.
    miopen : str
        Release whose solvers count, for picks and for the best.
    risk : float
        For the column "accepted" of the worst picks.
    models : path-like, optional
        Folder of bundles; default: those that come with foretune.
    networks : mapping, optional
        Name -> problems, counted. They are asked about beside the part.
    on_progress : callable, optional
        Called with a text, steps done and steps in all.
    """
    risk = check_risk(risk)
    arch = parse_arch(arch)
    named = _units_of(find_db, arch)
    units = compute_units or named or usual_compute_units(arch) or 0
    folder = Path(models or shipped_models())
    bundle = RankingBundle(folder / arch)
    tell = on_progress or (lambda _text, _done, _all: None)
    tell("reading", 0, 5)
    table, _ = read_find_table(find_db, arch, units)
    if not len(table):
        raise InputError("no record that can be used", str(find_db))
    learning = learning_parts(table)
    solvers = runnable(arch, miopen)
    learnt = {d: data for d, data in learning.parts.items() if d in bundle.directions}
    parts = {}
    for direction, data in learnt.items():
        wanted = [part_of(position) in PARTS[part] for position in data.position]
        kept = restrict(data.take(np.array(wanted, bool)), solvers)
        if len(kept):
            parts[direction] = kept
    if not parts:
        raise InputError(f"no shape of part {part!r}; see --part", str(find_db))
    of_networks = _named(learnt, networks or {}, solvers)
    tell("asking foretune", 1, 5)
    asked = _ask(bundle, parts, arch, units, miopen, risk)
    asked_networks = _ask(bundle, of_networks, arch, units, miopen, risk)
    tell("asking the others", 2, 5)
    pickers = _pickers(db, arch)
    answers = Answers(parts, asked, _picks(pickers, parts))
    network_answers = Answers(of_networks, asked_networks, _picks(pickers, of_networks))
    tell("scoring configs", 3, 5)
    configs = compare_configs(db, arch, units, part, folder, miopen=miopen) if db else []
    tell("scoring", 4, 5)
    return MIOpenComparison(
        str(find_db),
        arch,
        units,
        part,
        miopen,
        risk,
        dict(learning.left_out),
        bundle,
        answers,
        networks or {},
        network_answers,
        [asdict(score) for score in configs],
    )


def _named(
    learnt: Mapping[str, RankingData], networks: Networks, solvers: frozenset[str]
) -> dict[str, RankingData]:
    """Keep the records of the networks' problems."""
    wanted = {format_find_key(problem) for problems in networks.values() for problem in problems}
    parts = {}
    for direction, data in learnt.items():
        rows = np.array([str(name) in wanted for name in data.names], bool)
        kept = restrict(data.take(rows), solvers)
        if len(kept):
            parts[direction] = kept
    return parts


def _picks(
    pickers: Mapping[str, Baseline], parts: Mapping[str, RankingData]
) -> dict[str, list[str | None]]:
    problems = [parse_find_key(str(name)) for data in parts.values() for name in data.names]
    return {name: picker.pick(problems) for name, picker in pickers.items()}


def _units_of(path: str | os.PathLike[str], arch: str) -> int | None:
    name = parse_database_name(Path(path).name)
    if name and name.arch != arch:
        raise InputError(f"its name says {name.arch}, not {arch}", str(path))
    return name.compute_units if name else None


def _ask(
    bundle: RankingBundle,
    parts: dict[str, RankingData],
    arch: str,
    units: int,
    miopen: str,
    risk: float,
) -> dict[str, Asked]:
    acceptance = Acceptance(bundle.calibration)
    asked = {}
    for direction, data in parts.items():
        model = bundle.ranking(direction)
        may_run = runnable_flags(model.candidates, arch, miopen)
        outcomes, order = evaluate(model, data, may_run, naive_flags(model.candidates))
        bits = to_bits(may_run)
        accepted = {
            level: outcomes.sure
            & np.array(
                [
                    acceptance.judge(units, direction, bits, level, float(score)).accepted
                    for score in outcomes.score
                ],
                bool,
            )
            for level in sorted({*RISKS, risk})
        }
        names = [model.candidates[column] for column in outcomes.pick]
        choices = [[model.candidates[column] for column in row] for row in order[:, :3].tolist()]
        asked[direction] = Asked(outcomes, names, accepted, _sum_of_times(data, choices))
    return asked


def _sum_of_times(data: RankingData, choices: Sequence[Collection[str]]) -> Floats:
    slowest = np.where(np.isfinite(data.times), data.times, 0.0).max(axis=1)
    column = {name: i for i, name in enumerate(data.candidates)}
    sums = np.zeros(len(data))
    for row, names in enumerate(choices):
        for name in names:
            at = column.get(name)
            time = np.inf if at is None else data.times[row, at]
            sums[row] += time if np.isfinite(time) else slowest[row]
    return sums


def _pickers(db: str | os.PathLike[str] | None, arch: str) -> dict[str, Baseline]:
    if db is None:
        return {}
    pickers: dict[str, Baseline] = {}
    for name, folder in (("TunaNet", Path(db)), ("TunaNet 2024", Path(db) / "2024")):
        if (folder / f"{arch}.tn.model").exists():
            pickers[name] = TunaNet.load(folder, arch)
    problems, times = [], []
    for data in learning_parts(cached_table(db, arch)).parts.values():
        train = np.array([part_of(position) == "train" for position in data.position], bool)
        kept = data.take(train)
        problems += [parse_find_key(str(name)) for name in kept.names]
        times += [_as_record(kept, row) for row in range(len(kept))]
    for name, trainable in (
        ("usual winner", UsualWinner()),
        ("nearest neighbour", NearestNeighbour()),
        ("hand rules", HandRules()),
    ):
        pickers[name] = trainable.fit(problems, times)
    return pickers


def _as_record(data: RankingData, row: int) -> dict[str, float]:
    return {
        data.candidates[column]: float(data.times[row, column])
        for column in np.flatnonzero(np.isfinite(data.times[row]))
    }


def _scores(answers: Answers) -> dict[str, dict[str, Score]]:
    best = np.concatenate([data.best for data in answers.parts.values()])
    top3 = np.concatenate([a.outcomes.top3 for a in answers.asked.values()])
    answered = answers.answered()
    picked = answers.picked_ms()
    return {
        group: {
            name: score_picks(
                best[rows & answered[name]],
                times[rows & answered[name]],
                top3[rows & answered[name]] if name == "foretune" else None,
            )
            for name, times in picked.items()
        }
        for group, rows in scored_groups(answers).items()
    }


def scored_groups(answers: Answers) -> dict[str, Flags]:
    """Problems of each group that is scored; TunaNet's own where it was asked."""
    by_part = [group_rows(data) for data in answers.parts.values()]
    groups = {group: np.concatenate([rows[group] for rows in by_part]) for group in by_part[0]}
    if "TunaNet" in answers.picks:
        groups["2-D that TunaNet answers"] = answers.answered()["TunaNet"]
    return groups


def _times_of(
    parts: dict[str, RankingData], chosen: Sequence[str | None]
) -> npt.NDArray[np.float64]:
    times = np.full(len(chosen), np.inf)
    start = 0
    for data in parts.values():
        column = {name: i for i, name in enumerate(data.candidates)}
        for row in range(len(data)):
            at = column.get(chosen[start + row] or "")
            if at is not None:
                times[start + row] = data.times[row, at]
        start += len(data)
    return times


def _accepting(asked: dict[str, Asked]) -> list[dict[str, Any]]:
    together = Outcomes.join([a.outcomes for a in asked.values()])
    rows = []
    for risk in sorted(next(iter(asked.values())).accepted):
        accepted = np.concatenate([a.accepted[risk] for a in asked.values()])
        rows.append(together.delivered(accepted, risk).to_dict())
    return rows


def _worst(
    parts: dict[str, RankingData], asked: dict[str, Asked], risk: float
) -> list[dict[str, Any]]:
    rows = []
    for direction, data in parts.items():
        answer = asked[direction]
        slowdown = answer.outcomes.picked / answer.outcomes.best
        slowdown = np.where(np.isfinite(slowdown), slowdown, 0)
        for row in np.argsort(-slowdown, kind="stable")[:_WORST]:
            rows.append(
                {
                    "problem": str(data.names[row]),
                    "pick": answer.picked[row],
                    "best": data.candidates[int(data.times[row].argmin())],
                    "slowdown": float(slowdown[row]),
                    "accepted": bool(answer.accepted[risk][row]),
                }
            )
    return sorted(rows, key=lambda row: -row["slowdown"])[:_WORST]
