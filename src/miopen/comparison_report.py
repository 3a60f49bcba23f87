"""A comparison on a find-db as a report. Needs the extras `train` and `report`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune import __version__
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.devices import device_facts
from foretune.miopen.comparison import Answers, MIOpenComparison, scored_groups
from foretune.miopen.keys import format_find_key, parse_find_key
from foretune.miopen.networks import RUNS
from foretune.miopen.predictor import naive_flags, runnable_flags
from foretune.predictor.dataset import RankingData
from foretune.predictor.features.conv import ROOFLINE_AT
from foretune.predictor.report.conv import conv_in_words
from foretune.predictor.report.data import (
    Layer,
    Network,
    Picks,
    ReportData,
    SearchTime,
    WorstPick,
)
from foretune.predictor.split import part_of

_WORST = 12
_CHOICES = 3
_ORDINALS = ("first", "second", "third", "fourth")
# What runs where MIOpen has no entry and isn't let search: the first of these that was asked.
_DEFAULTS = ("TunaNet", "usual winner")
_LAYOUTS = ("NCHW", "NCDHW")
_PARTS = {
    "test": "the shapes that neither training nor the choice of thresholds saw",
    "calibrate": "the shapes that training never saw, and that thresholds were chosen on",
    "unseen": "the shapes that training never saw; thresholds were chosen on two fifths of them",
    "all": "all shapes, most of which training saw",
}
_BASIS = (
    f"A lower bound for MIOpen's find: the times that the database lists, {RUNS} runs each (one to "
    "warm up, seven that count). It lists the four fastest solvers of a problem at most; neither "
    "the slower ones, nor compiling, nor the tuning of parameters is in it. What is left: for "
    f"problems whose pick isn't accepted, {RUNS} runs of each of the first {_CHOICES} choices; one "
    "that isn't listed counts as the slowest that is."
)


def report_of(comparison: MIOpenComparison, networks_from: str = "") -> ReportData:
    """Put a comparison into the form of a report.

    Parameters
    ----------
    comparison : MIOpenComparison
    networks_from : str, optional
        Where the networks come from, for people.
    """
    answers, risk = comparison.answers, comparison.risk
    together = _Together(answers)
    default = next((name for name in _DEFAULTS if name in answers.picks), "")
    accepted = {
        level: np.concatenate([a.accepted[level] for a in answers.asked.values()])
        for level in next(iter(answers.asked.values())).accepted
    }
    groups = scored_groups(answers)
    name = device_facts(comparison.arch, comparison.compute_units).name
    device = f"{name} ({comparison.arch}, {comparison.compute_units} compute units)"
    answered = answers.answered()
    networks = list(_networks(comparison))
    return ReportData(
        title=f"MIOpen's solvers on {device}",
        subtitle=f"{len(together.best):,} problems of {Path(comparison.find_db).name}",
        facts=_facts(comparison, device, together),
        seen=_seen(comparison, together.unseen, networks),
        not_measured="not listed",
        best=together.best,
        pickers=[
            Picks(picker, times, answered[picker]) for picker, times in answers.picked_ms().items()
        ],
        default=default,
        first_choices=together.column("top3"),
        choices=_CHOICES,
        score=together.column("score"),
        sure=together.column("sure"),
        stratum=np.repeat(list(answers.parts), [len(data) for data in answers.parts.values()]),
        shape=together.column("shape"),
        unseen=together.unseen,
        groups={"all": groups["all"]} | groups,
        accepted=accepted,
        risk=risk,
        search=_search(answers, accepted[risk]),
        networks=networks,
        networks_note=_networks_note(networks_from, default),
        worst=_worst(comparison),
    )


class _Together:
    """Answers of all directions, one after the other."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.best = self.column("best")
        self.unseen = np.array([part_of(p) != "train" for p in self.column("shape")], bool)

    def column(self, name: str) -> npt.NDArray[Any]:
        """Give a column of the outcomes."""
        asked = self._answers.asked.values()
        return np.concatenate([getattr(a.outcomes, name) for a in asked])


def _facts(comparison: MIOpenComparison, device: str, together: _Together) -> dict[str, str]:
    left_out = sum(comparison.left_out.values())
    facts = {
        "device": device,
        "tuned": comparison.find_db,
        "problems": f"{len(together.best):,}, of {len(np.unique(together.column('shape'))):,} "
        f"shapes, part {comparison.part!r}",
        "MIOpen": "any: every solver that the database lists"
        if comparison.miopen == "any"
        else f"{comparison.miopen}: only solvers that this release can run, for picks and the best",
        "stated risk": f"{comparison.risk:.1%}",
        "model": str(comparison.bundle.folder),
        "others": ", ".join(comparison.answers.picks) or "none; --db FOLDER brings them",
        "foretune": __version__,
    }
    if left_out:
        reasons = sorted(comparison.left_out.items())
        facts["left out"] = f"{left_out:,} problems: " + ", ".join(
            f"{count:,} {why}" for why, count in reasons
        )
    return facts


def _seen(
    comparison: MIOpenComparison, unseen: npt.NDArray[np.bool_], networks: list[Network]
) -> str:
    text = (
        f"Scores are over {_PARTS[comparison.part]}: {unseen.mean():.1%} of the {len(unseen):,} "
        "problems have unseen shapes. Batch sizes, types and directions of one shape are always on "
        "one side."
    )
    layers = [layer for network in networks for layer in network.layers]
    if layers:
        count = sum(layer.unseen for layer in layers)
        text += (
            f" Of the {len(layers):,} layers of networks, {count:,} have unseen shapes; the others "
            "were learnt from, so whole networks look better than new ones would."
        )
    return text


def _search(answers: Answers, accepted: npt.NDArray[np.bool_]) -> SearchTime:
    full = np.concatenate([_listed_ms(data) for data in answers.parts.values()])
    choices = np.concatenate([a.choices_ms for a in answers.asked.values()])
    # Nobody measures more than a search does.
    left = np.minimum(choices, full)[~accepted]
    return SearchTime(RUNS * float(full.sum()) / 1e3, RUNS * float(left.sum()) / 1e3, _BASIS)


def _listed_ms(data: RankingData) -> npt.NDArray[np.float64]:
    return np.asarray(np.where(np.isfinite(data.times), data.times, 0.0).sum(axis=1))


def _networks_note(networks_from: str, default: str) -> str:
    note = (
        f"Layers of {networks_from or 'well-known networks'} that the database holds, each problem "
        "as often as the list has it. A pick that isn't listed counts as the slowest that is."
    )
    return f"{note} The default is {default}, with no entry and no search." if default else note


def _networks(comparison: MIOpenComparison) -> Iterator[Network]:
    found = _found_layers(comparison)
    for name, problems in comparison.networks.items():
        variants: dict[str, list[ConvProblem]] = {}
        for problem in problems:
            variants.setdefault(_variant(problem), []).append(problem)
        for variant, some in variants.items():
            layers = [
                replace(found[key], count=problems[problem])
                for problem in some
                if (key := format_find_key(problem)) in found
            ]
            if layers:
                yield Network(name, variant, len(some), layers)


def _variant(problem: ConvProblem) -> str:
    return problem.dtype if problem.layout in _LAYOUTS else f"{problem.dtype} {problem.layout}"


def _found_layers(comparison: MIOpenComparison) -> dict[str, Layer]:
    answers = comparison.network_answers
    picked, answered = answers.picked_ms(), answers.answered()
    found, place = {}, 0
    for direction, data in answers.parts.items():
        accepted = answers.asked[direction].accepted[comparison.risk]
        slowest = np.where(np.isfinite(data.times), data.times, 0.0).max(axis=1)
        search = RUNS * _listed_ms(data)
        for row in range(len(data)):
            times = {name: float(picked[name][place]) for name in picked if answered[name][place]}
            found[str(data.names[row])] = Layer(
                str(data.names[row]),
                1,
                float(data.best[row]),
                {
                    name: time if np.isfinite(time) else float(slowest[row])
                    for name, time in times.items()
                },
                frozenset(name for name, time in times.items() if not np.isfinite(time)),
                float(search[row]),
                part_of(data.position[row]) != "train",
                bool(accepted[row]),
            )
            place += 1
    return found


def _worst(comparison: MIOpenComparison) -> list[WorstPick]:
    candidates = []
    for direction, data in comparison.answers.parts.items():
        outcomes = comparison.answers.asked[direction].outcomes
        slowest = np.where(np.isfinite(data.times), data.times, 0.0).max(axis=1)
        took = np.where(np.isfinite(outcomes.picked), outcomes.picked, slowest)
        slowdown = took / outcomes.best
        for row in np.argsort(-slowdown, kind="stable")[:_WORST].tolist():
            candidates.append((float(slowdown[row]), direction, row))
    candidates.sort(key=lambda found: -found[0])
    return [
        _why(comparison, direction, row)
        for slowdown, direction, row in candidates[:_WORST]
        if slowdown > 1
    ]


def _why(comparison: MIOpenComparison, direction: str, row: int) -> WorstPick:
    data = comparison.answers.parts[direction].take([row])
    asked = comparison.answers.asked[direction]
    model = comparison.bundle.ranking(direction)
    may_run = runnable_flags(model.candidates, comparison.arch, comparison.miopen)
    features = data.features()[0]
    admission = model.admit(data.raw[0].tolist(), features, may_run, naive_flags(model.candidates))
    ranked = model.assess_one(features, admission)
    unit = 2.0 ** float(features[ROOFLINE_AT])
    predicted = {model.candidates[r.candidate]: exp(r.log_time) * unit for r in ranked}
    listed = data.times[0][np.isfinite(data.times[0])]
    best = data.candidates[int(data.times[0].argmin())]
    pick, time = asked.picked[row], float(asked.outcomes.picked[row])
    took = time if np.isfinite(time) else float(listed.max())
    problem = parse_find_key(str(data.names[0]))
    names = [model.candidates[r.candidate] for r in ranked]
    return WorstPick(
        problem=str(data.names[0]),
        features=conv_in_words(problem, device_facts(comparison.arch, comparison.compute_units)),
        pick=pick,
        best=best,
        pick_ms=took,
        is_at_least=not np.isfinite(time),
        best_ms=float(listed.min()),
        pick_predicted_ms=predicted[pick],
        best_predicted_ms=predicted.get(best),
        score=float(asked.outcomes.score[row]),
        accepted=bool(asked.accepted[comparison.risk][row]),
        unseen=part_of(data.position[0]) != "train",
        reason=_reason(best, names, model.candidates, admission.allowed, admission.last)
        + _surprise(float(took / predicted[pick]), best, predicted, float(listed.min())),
    )


def _reason(
    best: str,
    names: list[str],
    known: tuple[str, ...],
    allowed: npt.NDArray[np.bool_],
    last: npt.NDArray[np.bool_],
) -> str:
    if best not in known:
        return "Training never saw this solver."
    at = known.index(best)
    if last[at]:
        return (
            "The best is a naive solver, which comes last wherever training saw none of its kind "
            "win."
        )
    if not allowed[at]:
        return "A rule leaves the best out: training lists it for no such problem."
    if best not in names:
        return (
            f"The best isn't among the {len(names)} that the first stage thinks most likely to win."
        )
    return f"The best came {_ORDINALS[names.index(best)]} of {len(names)} that were looked at."


def _surprise(of_pick: float, best: str, predicted: Mapping[str, float], best_ms: float) -> str:
    """Say how far times were from what was predicted."""
    text = f" The pick took {of_pick:.2g} times what was predicted"
    if best in predicted:
        text += f", the best {best_ms / predicted[best]:.2g} times"
    return f"{text}."
