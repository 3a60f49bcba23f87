"""The page of a report: tables and figures in one HTML file."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from foretune.files import replace_file
from foretune.predictor.compare import Score
from foretune.predictor.report import figures
from foretune.predictor.report.data import Network, ReportData
from foretune.predictor.report.text import printable

_FOLDER = Path(__file__).parent


class Cell(NamedTuple):
    """A cell of a table: what it says, and the number that it is sorted by, if it is one."""

    text: str
    key: float | None = None


class Table(NamedTuple):
    """A table of a page; `numbers` tells for each column whether it holds numbers."""

    caption: str
    headers: Sequence[str]
    numbers: Sequence[bool]
    rows: Sequence[Sequence[Cell]]


class Card(NamedTuple):
    """A figure in large letters."""

    value: str
    label: str
    detail: str


def write_report(data: ReportData, path: str | os.PathLike[str]) -> None:
    """Write a report as one HTML file, which appears whole or not at all.

    Parameters
    ----------
    data : ReportData
    path : path-like

    Raises
    ------
    InputError
        If the file can't be written.
    """
    page = render_report(data)
    with replace_file(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def render_report(data: ReportData) -> str:
    """Give a report as the text of an HTML file.

    Parameters
    ----------
    data : ReportData
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        # Whatever a name holds, the file stays valid.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    script = _FOLDER.joinpath("sort.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html").render(
        data=data,
        style=Markup(_FOLDER.joinpath("page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_digest=digest,
        cards=list(_cards(data)),
        slowdowns=figures.slowdown_curve(data),
        outcomes=figures.outcome_bars(data),
        risk=figures.risk_and_coverage(data),
        scores=[_scores(data, group) for group in data.groups if data.groups[group].any()],
        accepting=_accepting(data),
        thresholds=_thresholds(data),
        efficiencies=figures.network_efficiencies(data) if data.networks else None,
        networks=_networks(data) if data.networks else None,
        layers=list(_layers(data)),
        search=_search(data),
        markup=Markup,
    )


def _cards(data: ReportData) -> Iterable[Card]:
    score, outcome = data.score_of_model, data.delivered(data.risk)
    other = data.scores_of(data.default) if data.default else None
    yield Card(
        _factor(score.slowdown),
        "slowdown of the picks, geometric mean",
        f"{data.default}: {_factor(other.slowdown)}" if other else "1 is the best measured",
    )
    yield Card(
        _percent(1 - float(data.bad.mean())),
        "of the picks within 1.1x of the best",
        f"{_percent(score.top1)} are the best; {_percent(score.not_listed)} {data.not_measured}",
    )
    yield Card(
        _percent(outcome.coverage),
        f"answered without measuring, at a stated risk of {data.stated}",
        f"achieved: {_percent(outcome.risk_by_shape)} by shape, {_percent(outcome.risk)} by record",
    )
    yield Card(
        _factor(outcome.slowdown),
        f"slowdown delivered: accepted picks, the first {data.choices} of others measured",
        f"measured: {_percent(outcome.measured)} of the problems",
    )
    yield Card(
        _percent(1 - data.search.left_s / data.search.full_s) if data.search.full_s else "none",
        "of the search time spared",
        f"{_seconds(data.search.full_s)} becomes {_seconds(data.search.left_s)}",
    )


def _scores(data: ReportData, group: str) -> Table:
    headers = (
        "picker,problems,the best,within 2%,{},slowdown,P10 efficiency,P1 efficiency,above 1.1x,"
        "above 2x,first {} measured"
    ).format(data.not_measured.replace(",", " "), data.choices)
    rows = [[Cell(name), *_score_cells(score)] for name, score in data.scores(group).items()]
    return Table(f"Scores, {group}", headers.split(","), [False, *[True] * 10], rows)


def _score_cells(score: Score) -> list[Cell]:
    return [
        Cell(f"{score.problems:,}", score.problems),
        *map(_share, (score.top1, score.top1_within_2pct, score.not_listed)),
        Cell(_factor(score.slowdown), score.slowdown),
        Cell(f"{score.p10_efficiency:.3f}", score.p10_efficiency),
        Cell(f"{score.p1_efficiency:.3f}", score.p1_efficiency),
        *map(_share, (score.above_1_1x, score.above_2x)),
        Cell("")
        if score.top3_slowdown is None
        else Cell(_factor(score.top3_slowdown), score.top3_slowdown),
    ]


def _accepting(data: ReportData) -> Table:
    rows = []
    for risk in sorted(data.accepted):
        outcome = data.delivered(risk)
        rows.append(
            [
                Cell(f"{100 * risk:g}%", risk),
                _share(outcome.coverage),
                _share(outcome.risk_by_shape),
                _share(outcome.risk),
                _share(outcome.measured),
                Cell(_factor(outcome.slowdown), outcome.slowdown),
            ]
        )
    headers = (
        "stated risk,coverage,achieved by shape,achieved by record,measured,slowdown delivered"
    ).split(",")
    return Table("Accepting at each stated risk", headers, [True] * 6, rows)


def _thresholds(data: ReportData) -> Table:
    rows = []
    for name in data.strata:
        of = data.stratum == name
        coverage, risk = data.operating_point(of, data.risk)
        lowest = data.lowest_accepted(of, data.risk)
        rows.append(
            [
                Cell(name),
                Cell(f"{of.sum():,}", int(of.sum())),
                _share(coverage),
                _share(risk),
                Cell("accepts nothing") if lowest is None else Cell(f"{lowest:.3f}", lowest),
            ]
        )
    headers = ["for", "problems", "coverage", "bad among the accepted", "lowest score accepted"]
    caption = f"Thresholds at a stated risk of {data.stated}"
    return Table(caption, headers, [False, *[True] * 4], rows)


def _networks(data: ReportData) -> Table:
    model, default = data.model.name, data.default
    rows = []
    for network in data.networks:
        unseen = sum(layer.unseen for layer in network.layers)
        accepted = sum(layer.accepted for layer in network.layers)
        row = [
            Cell(network.name),
            Cell(network.variant),
            Cell(f"{len(network.layers)} of {network.problems}", len(network.layers)),
            Cell(f"{unseen}", unseen),
            Cell(f"{accepted}", accepted),
            _time(network.tuned_ms()),
            _time(network.picked_ms(model)),
        ]
        if data.has_default:
            row.append(_default_time(network, default))
        row.append(_share(network.efficiency(model)))
        if data.has_default:
            row.append(_share(network.efficiency(default)))
        row.append(Cell(_seconds(network.search_ms / 1e3), network.search_ms))
        rows.append(row)
    headers = ["network", "type", "layers", "unseen", "accepted", "tuned ms", "predicted ms"]
    headers += ["default ms"] * data.has_default + ["predicted, efficiency"]
    headers += ["default, efficiency"] * data.has_default + ["search"]
    numbers = [False, False, *[True] * (len(headers) - 2)]
    is_named = data.has_default and default != "default"
    caption = f"Whole networks; the default is {default}" if is_named else "Whole networks"
    return Table(caption, headers, numbers, rows)


def _default_time(network: Network, default: str) -> Cell:
    time = network.picked_ms(default)
    answered = network.answered(default)
    note = "" if answered == len(network.layers) else f" ({answered} layers)"
    return Cell(f"{time:.4g}{note}", time)


def _layers(data: ReportData) -> Iterable[dict[str, Any]]:
    drawn = figures.layer_efficiencies(data)
    groups = groupby(data.networks, lambda network: network.name)
    for figure, (name, networks) in zip(drawn, groups, strict=True):
        yield {
            "name": name,
            "figure": figure,
            "tables": [_layer_table(data, network) for network in networks],
        }


def _layer_table(data: ReportData, network: Network) -> Table:
    model, default = data.model.name, data.default
    pickers = [model] + [default] * data.has_default
    rows = []
    for layer in network.layers:
        row = [Cell(layer.problem), Cell(f"{layer.count}", layer.count), _time(layer.tuned_ms)]
        for picker in pickers:
            time = layer.picked_ms.get(picker)
            if time is None:
                row += [Cell("no answer"), Cell("")]
            else:
                sign = "≥ " if picker in layer.at_least else ""
                row += [Cell(f"{sign}{time:.4g}", time), _share(layer.tuned_ms / time)]
        row += [Cell("yes" if layer.unseen else ""), Cell("yes" if layer.accepted else "")]
        rows.append(row)
    headers = ["problem", "times", "tuned ms"]
    for picker in pickers:
        headers += [f"{picker}, ms", "efficiency"]
    headers += ["unseen", "accepted"]
    numbers = [False, *[True] * (len(headers) - 3), False, False]
    return Table(f"Layers of {network.name}, {network.variant}", headers, numbers, rows)


def _search(data: ReportData) -> Table:
    full, left = data.search.full_s, data.search.left_s
    rows = [
        [Cell("searching every problem"), Cell(_seconds(full), full)],
        [
            Cell(
                f"at a stated risk of {data.stated}: nothing where the pick is accepted, the "
                f"first {data.choices} choices measured elsewhere"
            ),
            Cell(_seconds(left), left),
        ],
    ]
    headers = ["what is measured", "time on the device"]
    return Table("Search time", headers, [False, True], rows)


def _share(value: float) -> Cell:
    return Cell(_percent(value), value)


def _time(milliseconds: float) -> Cell:
    return Cell(f"{milliseconds:.4g}", milliseconds)


def _percent(share: float) -> str:
    if share != share:
        return "none"
    return f"{share:.2%}" if 0 < share < 0.0995 else f"{share:.1%}"


def _factor(slowdown: float) -> str:
    return "none" if slowdown != slowdown else f"{slowdown:.4f}"


def _seconds(seconds: float) -> str:
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 90:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
