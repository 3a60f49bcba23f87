"""A comparison on datasets of tuning runs as a report. Needs the extras `train` and `report`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from foretune import __version__
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.problem_text import format_problem
from foretune.kernels.suites import read_suite
from foretune.predictor.kernels.comparison import KernelComparison
from foretune.predictor.report.conv import conv_in_words
from foretune.predictor.report.data import (
    Layer,
    Network,
    Picks,
    ReportData,
    SearchTime,
    WorstPick,
)

#: Suites whose layers are shown apart, as far as the data holds them.
SUITES = ("resnet50", "mobilenet", "unet", "cpu")
_WORST = 12
_CHOICES = 4
_NOT_MEASURED = "not measured"
_BASIS = (
    "A lower bound for tuning: the samples that were taken of each candidate, times its median, "
    "over all candidates that were tried; neither building kernels, nor warming up, nor checking "
    f"results is in it. What is left: the same for the first {_CHOICES} measured choices of the "
    "problems whose pick isn't accepted."
)

Floats = npt.NDArray[np.float64]


def report_of(comparison: KernelComparison) -> ReportData:
    """Put a comparison into the form of a report.

    Parameters
    ----------
    comparison : KernelComparison
    """
    trials = comparison.trials
    times = _Times(comparison)
    devices = ", ".join(comparison.devices)
    picks = comparison.picks
    networks = list(_networks(comparison, times))
    return ReportData(
        title=f"foretune's kernels on {devices}",
        subtitle=f"{len(comparison.problems):,} tuned problems, {len(trials):,} trials",
        facts={
            "device": f"{devices} ({comparison.arch})",
            "tuned": ", ".join(comparison.data),
            "problems": f"{len(comparison.problems):,}, of {len(np.unique(trials.position)):,} "
            "shapes",
            "stated risk": f"{100 * comparison.risk:g}%",
            "others": ", ".join(name for name in picks if name != "foretune"),
            "foretune": __version__,
        },
        seen=_seen(comparison),
        not_measured=_NOT_MEASURED,
        best=comparison.best,
        pickers=[
            Picks(name, one.picked, np.array([bool(key) for key in one.candidate], bool))
            if name != "foretune"
            else Picks(name, one.picked, np.ones(len(comparison.best), bool))
            for name, one in picks.items()
        ],
        default="default" if "default" in picks else "",
        first_choices=picks["foretune"].top4,
        choices=_CHOICES,
        score=comparison.score,
        sure=comparison.sure,
        stratum=np.array([device.name for _, device in trials.tasks]),
        shape=trials.position,
        unseen=comparison.unseen,
        groups=comparison.groups,
        accepted=comparison.accepted_at,
        risk=comparison.risk,
        search=_search(comparison, times),
        networks=networks,
        networks_note=(
            "Layers of the suites that come with foretune, as far as they were tuned, each once. "
            "The default is the first solver that applies with its default config, which is what "
            "runs with neither model nor tuning."
        ),
        worst=_worst(comparison),
    )


class _Times:
    """What was measured of each problem, by candidate."""

    def __init__(self, comparison: KernelComparison) -> None:
        trials = comparison.trials
        count = len(trials.tasks)
        self.full_ms = np.zeros(count)
        self.of_candidate: list[dict[str, float]] = [{} for _ in range(count)]
        finite = np.isfinite(trials.time_ms)
        spent = np.where(finite, trials.time_ms, 0.0) * np.maximum(trials.samples, finite)
        np.add.at(self.full_ms, trials.task, spent)
        for row, key in enumerate(trials.keys()):
            if trials.measured[row]:
                self.of_candidate[trials.task[row]][key] = float(spent[row])

    def choices_ms(self, comparison: KernelComparison) -> Floats:
        """Give what measuring the first few choices took."""
        return np.array(
            [
                sum([spent[key] for key in keys if key in spent][:_CHOICES])
                for keys, spent in zip(comparison.ranked, self.of_candidate, strict=True)
            ]
        )


def _seen(comparison: KernelComparison) -> str:
    unseen = comparison.unseen
    return (
        f"{int(unseen.sum()):,} of the {len(unseen):,} problems ({unseen.mean():.1%}) are answered "
        "by models that never saw their shape: where the model learnt from a problem, its answer "
        "here is that of a model trained without the shape, and so are its score and the "
        "thresholds' choice. Simple pickers learn from the other shapes. The layers of networks "
        "are among these problems. The best is the fastest candidate that was measured; the pick "
        "is the first choice that was, since not every candidate was tried on every problem."
    )


def _search(comparison: KernelComparison, times: _Times) -> SearchTime:
    left = times.choices_ms(comparison)[~comparison.accepted]
    return SearchTime(float(times.full_ms.sum()) / 1e3, float(left.sum()) / 1e3, _BASIS)


def _networks(comparison: KernelComparison, times: _Times) -> Iterator[Network]:
    tasks = comparison.trials.tasks
    places: dict[str, list[int]] = {}
    for task, text in enumerate(comparison.problems):
        places.setdefault(text, []).append(task)
    several = len(set(comparison.devices)) > 1
    for suite in SUITES:
        asked: dict[str, int] = {}
        layers: dict[str, list[Layer]] = {}
        for problem in read_suite(suite):
            if not isinstance(problem, ConvProblem):
                continue
            variant = f"{problem.dtype} {problem.layout}"
            asked[variant] = asked.get(variant, 0) + 1
            for task in places.get(format_problem(problem), []):
                name = f"{variant}, {tasks[task][1].name}" if several else variant
                layers.setdefault(name, []).append(_layer(comparison, times, task))
        for name, found in layers.items():
            yield Network(suite, name, asked[name.partition(",")[0]], found)


def _layer(comparison: KernelComparison, times: _Times, task: int) -> Layer:
    return Layer(
        comparison.problems[task],
        1,
        float(comparison.best[task]),
        {
            name: float(picks.picked[task])
            for name, picks in comparison.picks.items()
            if np.isfinite(picks.picked[task])
        },
        frozenset(),
        float(times.full_ms[task]),
        bool(comparison.unseen[task]),
        bool(comparison.accepted[task]),
    )


def _worst(comparison: KernelComparison) -> list[WorstPick]:
    picks = comparison.picks["foretune"]
    slowdown = np.where(np.isfinite(picks.picked), picks.picked / comparison.best, 0.0)
    return [
        _why(comparison, task)
        for task in np.argsort(-slowdown, kind="stable")[:_WORST].tolist()
        if slowdown[task] > 1
    ]


def _why(comparison: KernelComparison, task: int) -> WorstPick:
    picks = comparison.picks["foretune"]
    problem, device = comparison.trials.tasks[task]
    words = conv_in_words(problem)
    if len(set(comparison.devices)) > 1:
        words["device"] = device.name
    return WorstPick(
        problem=comparison.problems[task],
        features=words,
        pick=picks.candidate[task],
        best=comparison.best_candidate[task],
        pick_ms=float(picks.picked[task]),
        is_at_least=False,
        best_ms=float(comparison.best[task]),
        pick_predicted_ms=None,
        best_predicted_ms=None,
        score=float(comparison.score[task]),
        accepted=bool(comparison.accepted[task]),
        unseen=bool(comparison.unseen[task]),
        reason=_reason(comparison, task),
    )


def _reason(comparison: KernelComparison, task: int) -> str:
    pick = comparison.picks["foretune"].candidate[task]
    best, ranked = comparison.best_candidate[task], comparison.ranked[task]
    if best in ranked:
        place = f"The best came {ranked.index(best) + 1} of {len(ranked)} choices."
    else:
        place = f"The best isn't among the {len(ranked)} choices."
    of_pick, of_best = (key.partition("{")[0] for key in (pick, best))
    if of_pick == of_best:
        what = "The solver is right, the config isn't."
    else:
        what = f"The solver is wrong: {of_best} is faster."
    tried = f"{ranked.index(pick)} choices before the pick were never measured." if pick else ""
    return f"{place} {what} {tried if pick and ranked.index(pick) else ''}".strip()
