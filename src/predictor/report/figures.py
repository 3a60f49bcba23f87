"""Figures of a report, as SVG that a page shows inline and colours by its style sheet."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from foretune.predictor.compare import BAD_SLOWDOWN
from foretune.predictor.report.data import Network, Picks, ReportData
from foretune.predictor.report.text import printable, shorten

Floats = npt.NDArray[np.float64]

_INK, _MUTED, _GRID, _PAGE = "#1f2430", "#6b7280", "#d9dce3", "#fefefe"
#: The model's colour, then those of the others; told apart by dashes and markers too.
_SERIES = ("#0b63c4", "#c4650b", "#2b8a57", "#8450bb", "#ad3d33", "#6f6d17", "#3d7f8c")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
#: From what was best to what was never measured.
_SHADES = ("#12477f", "#3f83c8", "#e3b75f", "#c9663a", "#8d9099")
#: What the page's style sheet calls the colours that figures are drawn in.
_VARIABLES = {
    _INK: "--ink",
    _MUTED: "--muted",
    _GRID: "--grid",
    _PAGE: "--page",
    **{colour: f"--series-{i}" for i, colour in enumerate(_SERIES)},
    **{colour: f"--shade-{i}" for i, colour in enumerate(_SHADES)},
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "foretune",
    # Names hold dollars and backslashes that mean nothing.
    "text.parse_math": False,
    "text.usetex": False,
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _MUTED,
    "axes.labelcolor": _INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titlecolor": _INK,
    "grid.color": _GRID,
    "grid.linewidth": 0.7,
    "text.color": _INK,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "figure.facecolor": "none",
    "lines.linewidth": 1.6,
}
_DEFAULT_MARK: dict[str, Any] = {
    "linestyle": "none",
    "marker": "x",
    "markersize": 4,
    "markeredgewidth": 0.9,
    "color": _MUTED,
}
_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_WIDEST_CURVE = 10.0
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


@dataclass(frozen=True)
class Figure:
    """A figure with what stands beside it.

    Attributes
    ----------
    name : str
        Its id in the page.
    svg : str
        An `svg` element.
    alt : str
        What it shows, for those who can't see it.
    caption : str
        How to read it.
    """

    name: str
    svg: str
    alt: str
    caption: str


def slowdown_curve(data: ReportData) -> Figure:
    """Share of problems whose pick is slower than x times the best, for each picker."""
    with _canvas(7.4, 3.7) as canvas:
        axes = canvas.add_subplot()
        fewest = 1.0
        for i, picks in enumerate(data.pickers):
            slowdown = np.sort(data.slowdowns(picks))
            if not len(slowdown):
                continue
            x, share = _exceedance(slowdown)
            axes.step(x, share, where="post", label=shorten(picks.name, 28), **_line(i))
            fewest = min(fewest, float(share[share > 0].min(initial=1.0)))
        axes.set(xscale="log", yscale="log", xlim=(1.0, _WIDEST_CURVE))
        axes.set_ylim(max(fewest / 1.5, 1e-4), 1.0)
        axes.set_xlabel("slowdown of the pick against the best measured")
        axes.set_ylabel("share of problems slower than that")
        _ticks(axes.xaxis, (1, 1.1, 1.5, 2, 3, 5, 10), lambda x: f"{x:g}x")
        _ticks(axes.yaxis, (1e-4, 1e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1), _percent)
        axes.axvline(BAD_SLOWDOWN, color=_MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
        _legend_above(canvas, *axes.get_legend_handles_labels())
        svg = _svg(canvas, "slowdowns")
    parts = [
        f"{picks.name} {_percent(float((slow > BAD_SLOWDOWN).mean()))} slower than 1.1x and "
        f"{_percent(float((slow > 2).mean()))} slower than 2x"
        for picks in data.pickers
        if len(slow := data.slowdowns(picks))
    ]
    return _figure(
        "slowdowns",
        svg,
        "Share of problems slower than a given slowdown: " + "; ".join(parts) + ".",
        "Lower is better. At the dotted line a pick counts as bad. What "
        f"is {data.not_measured} counts as slower than anything, so that no curve falls below the "
        "share of such picks.",
    )


def outcome_bars(data: ReportData) -> Figure:
    """How many picks of each picker are best, near it, and far from it."""
    labels = ("the best", "within 1.1x", "1.1x to 2x", "above 2x", data.not_measured)
    rows = [(picks, _outcomes(data, picks)) for picks in data.pickers if picks.answered.any()]
    with _canvas(7.4, 0.75 + 0.42 * len(rows)) as canvas:
        axes = canvas.add_subplot()
        axes.grid(visible=False)
        for place, (_, shares) in enumerate(rows):
            left = 0.0
            for shade, share in enumerate(shares):
                axes.barh(place, share, 0.66, left, color=_SHADES[shade], edgecolor=_PAGE, lw=0.8)
                if share >= 0.045:
                    white = shade in (0, 1, 3, 4)
                    axes.text(
                        left + share / 2,
                        place,
                        f"{share:.0%}",
                        ha="center",
                        va="center",
                        color="white" if white else "black",
                        fontsize=8.5,
                    )
                left += share
        for shade, label in enumerate(labels):
            axes.barh(0, 0, color=_SHADES[shade], label=shorten(label, 24))
        axes.set_yticks(range(len(rows)), [shorten(picks.name, 28) for picks, _ in rows])
        axes.set(xlim=(0, 1), ylim=(len(rows) - 0.5, -0.5))
        axes.tick_params(left=False)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set_xticks([])
        _legend_above(canvas, *axes.get_legend_handles_labels())
        svg = _svg(canvas, "outcomes")
    parts = [
        f"{picks.name}: "
        + ", ".join(
            f"{_percent(share)} {label}" for share, label in zip(shares, labels, strict=True)
        )
        for picks, shares in rows
    ]
    return _figure(
        "outcomes",
        svg,
        "Outcomes of the picks. " + "; ".join(parts) + ".",
        "Every problem that a picker answers falls into one class.",
    )


def risk_and_coverage(data: ReportData) -> Figure:
    """Achieved risk over coverage, and over the stated risk."""
    every = np.ones(len(data.best), bool)
    strata = [(name, data.stratum == name) for name in data.strata]
    curves = [*strata, ("all", every)] if len(strata) > 1 else [(data.strata[0], every)]
    with _canvas(7.4, 3.5) as canvas:
        left, right = canvas.subplots(1, 2, width_ratios=(3, 2))
        highest = data.risk
        for i, (name, rows) in enumerate(curves):
            style = _line(i + 1 if len(curves) > 1 and name != "all" else 0)
            coverage, risk = data.risk_curve(rows)
            left.plot(*_thinned(coverage, risk), label=shorten(name, 20), **style)
            point = data.operating_point(rows, data.risk)
            left.plot(
                *point,
                marker="D" if name == "all" else "o",
                markersize=7,
                markerfacecolor=style["color"],
                markeredgecolor=_PAGE,
                linestyle="none",
                zorder=4,
            )
            # The first few picks may be bad by chance; they would press the rest flat.
            highest = max(highest, point[1], float(risk[coverage > 0.1].max(initial=0.0)))
        left.axhline(data.risk, color=_MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
        left.set(xlim=(0, 1.005), ylim=(0, min(1.0, 1.15 * highest)))
        left.set_xlabel("coverage: share answered without measuring")
        left.set_ylabel("bad among the accepted")
        left.set_title("as the lowest accepted score falls")
        left.legend(loc="best")
        stated = np.array(sorted(data.accepted))
        outcomes = [data.delivered(risk) for risk in stated.tolist()]
        by_shape = np.array([outcome.risk_by_shape for outcome in outcomes])
        top = 1.08 * max(float(stated.max()), float(by_shape.max()))
        right.plot([0, top], [0, top], color=_MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
        right.plot(stated, by_shape, **_line(0), marker="o", markersize=4.5)
        chosen = stated == data.risk
        right.plot(
            stated[chosen],
            by_shape[chosen],
            marker="D",
            markersize=7,
            markerfacecolor=_SERIES[0],
            markeredgecolor=_PAGE,
            linestyle="none",
        )
        right.set(xlim=(0, top), ylim=(0, top))
        right.set_xlabel("stated risk")
        right.set_ylabel("achieved risk, by shape")
        right.set_title("what was promised, what came")
        for axis in (left.xaxis, left.yaxis, right.xaxis, right.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda x, _: _percent(x)))
        svg = _svg(canvas, "risk")
    points = [(name, data.operating_point(rows, data.risk)) for name, rows in curves]
    parts = [f"{name} covers {_percent(c)} with {_percent(r)} bad" for name, (c, r) in points]
    pairs = [
        f"{_percent(risk)} stated, {_percent(outcome.risk_by_shape)} achieved"
        for risk, outcome in zip(stated.tolist(), outcomes, strict=True)
    ]
    return _figure(
        "risk",
        svg,
        f"Left: bad picks among the accepted, over coverage. At a stated risk of {data.stated}: "
        + "; ".join(parts)
        + ". Right: achieved over stated risk: "
        + "; ".join(pairs)
        + ".",
        f"Left: marks are the thresholds chosen for a stated risk of {data.stated} (dotted); "
        "they were chosen on other shapes, and so may lie above or below it. Right: below the "
        "dotted line the promise is kept; each shape counts once.",
    )


def network_efficiencies(data: ReportData) -> Figure:
    """Time of the tuned over time of the picks, for each network and picker."""
    networks = data.networks
    with _canvas(7.4, 0.95 + 0.27 * len(networks)) as canvas:
        axes = canvas.add_subplot()
        table = np.array([[n.efficiency(picks.name) for n in networks] for picks in data.pickers])
        shown = [i for i, p in enumerate(data.pickers) if i == 0 or p.name == data.default]
        left = max(0.0, float(np.nanmin(table[shown], initial=0.9)) - 0.04)
        for i, picks in reversed(list(enumerate(data.pickers))):
            colour = _SERIES[i % len(_SERIES)]
            inside = np.where(table[i] >= left, table[i], np.nan)
            axes.plot(
                inside,
                range(len(networks)),
                linestyle="none",
                color=colour,
                marker=_MARKERS[i % len(_MARKERS)],
                markersize=7 if i == 0 else 5,
                markerfacecolor=colour if i == 0 else "none",
                label=shorten(picks.name, 28),
                zorder=5 if i == 0 else 3,
                clip_on=False,
            )
        axes.set_yticks(range(len(networks)), [_network_label(network) for network in networks])
        axes.set(ylim=(len(networks) - 0.5, -0.5), xlim=(left, 1.0))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _percent(x)))
        axes.set_xlabel("time of the tuned over time of the picks")
        handles, labels = axes.get_legend_handles_labels()
        _legend_above(canvas, handles[::-1], labels[::-1])
        svg = _svg(canvas, "networks")
    parts = [
        f"{_network_label(network)} {_percent(network.efficiency(data.model.name))}"
        for network in networks
    ]
    return _figure(
        "networks",
        svg,
        f"Efficiency of whole networks with {data.model.name}: " + ", ".join(parts) + ".",
        "Right is better: at 100% a network takes the time of the tuned. A picker is held against "
        f"the tuned time of the layers that it answers. Below {_percent(left)} nothing is drawn.",
    )


def layer_efficiencies(data: ReportData) -> list[Figure]:
    """For each network, the efficiency of each layer's pick."""
    figures = []
    for number, (name, group) in enumerate(groupby(data.networks, lambda network: network.name)):
        variants = list(group)
        with _canvas(7.4, 0.75 + 1.35 * len(variants)) as canvas:
            rows = canvas.subplots(len(variants), 1, squeeze=False)[:, 0]
            for axes, network in zip(rows, variants, strict=True):
                _draw_layers(axes, network, data)
            rows[-1].set_xlabel("layers, in the order of the network's list")
            canvas.legend(
                handles=_layer_marks(data), loc="outside upper left", ncols=3, columnspacing=1.2
            )
            svg = _svg(canvas, f"layers-{number}")
        figures.append(
            _figure(
                f"layers-{number}",
                svg,
                f"Efficiency of each layer of {name}. "
                + " ".join(_layers_in_words(network, data.model) for network in variants),
                "The larger a dot, the more of the network's tuned time its layer takes; "
                "hollow dots aren't accepted, and would be measured.",
            )
        )
    return figures


def _draw_layers(axes: Axes, network: Network, data: ReportData) -> None:
    model = data.model.name
    total = network.tuned_ms() or 1.0
    if data.has_default:
        values = [
            (place, layer.tuned_ms / layer.picked_ms[data.default])
            for place, layer in enumerate(network.layers, 1)
            if data.default in layer.picked_ms
        ]
        axes.plot(*np.array(values).reshape(-1, 2).T, **_DEFAULT_MARK)
    for place, layer in enumerate(network.layers, 1):
        if model in layer.picked_ms:
            share = layer.count * layer.tuned_ms / total
            colour = _SERIES[1 if layer.unseen else 0]
            axes.plot(
                place,
                layer.tuned_ms / layer.picked_ms[model],
                marker="o",
                markersize=3.5 + 9 * math.sqrt(share),
                color=colour,
                markerfacecolor=colour if layer.accepted else "none",
                clip_on=False,
                zorder=4 if layer.unseen else 3,
            )
    axes.set(ylim=(0, 1.03), xlim=(0, len(network.layers) + 1))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda x, _: _percent(x)))
    axes.yaxis.set_major_locator(FixedLocator([0, 0.5, 1]))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, prune="lower"))
    axes.set_title(
        f"{shorten(network.variant, 30)}: {_percent(network.efficiency(model))} of the tuned speed"
    )


def _layer_marks(data: ReportData) -> list[Line2D]:
    """Give what the legend of layers shows."""
    marks = []
    for colour, label in ((0, "shape was learnt"), (1, "unseen shape")):
        for face, state in ((_SERIES[colour], "accepted"), ("none", "not accepted")):
            marks.append(
                Line2D(
                    [],
                    [],
                    linestyle="none",
                    marker="o",
                    color=_SERIES[colour],
                    markerfacecolor=face,
                    label=f"{label}, {state}",
                )
            )
    if data.has_default:
        marks.append(Line2D([], [], label=shorten(data.default, 28), **_DEFAULT_MARK))
    return marks


def _layers_in_words(network: Network, model: Picks) -> str:
    values = np.array(
        [
            layer.tuned_ms / layer.picked_ms[model.name]
            for layer in network.layers
            if model.name in layer.picked_ms
        ]
    )
    if not len(values):
        return f"{network.variant}: no layer is answered."
    return (
        f"{network.variant}: {len(values)} layers, {int((values > 1 / BAD_SLOWDOWN).sum())} within "
        f"1.1x of the best, the lowest at {_percent(float(values.min()))}."
    )


def _network_label(network: Network) -> str:
    return shorten(f"{network.name}, {network.variant}" if network.variant else network.name, 34)


def _exceedance(slowdown: Floats) -> tuple[Floats, Floats]:
    """Points of the share that is slower than x, for sorted slowdowns, within the figure."""
    inside = slowdown[slowdown < _WIDEST_CURVE]
    x, last = np.unique(np.maximum(inside, 1.0), return_index=True)
    after = np.append(last[1:], len(inside))[: len(x)]
    share = 1 - after / len(slowdown)
    if not len(x) or x[0] > 1.0:
        x, share = np.append(1.0, x), np.append(1.0, share)
    x, share = np.append(x, _WIDEST_CURVE), np.append(share, share[-1])
    return _thinned(x, share)


def _thinned(x: Floats, y: Floats, most: int = 600) -> tuple[Floats, Floats]:
    """Fewer points of a curve, its first and last among them."""
    if len(x) <= most:
        return x, y
    # Curves run over decades: half of the points evenly, half of them by their ends.
    ends = np.unique(np.geomspace(1, len(x), most // 4).astype(int)) - 1
    even = np.linspace(0, len(x) - 1, most // 2).astype(int)
    kept = np.unique(np.concatenate([ends, len(x) - 1 - ends, even]))
    return x[kept], y[kept]


def _outcomes(data: ReportData, picks: Picks) -> list[float]:
    slowdown = data.slowdowns(picks)
    finite = np.isfinite(slowdown)
    classes = (
        slowdown <= 1,
        (slowdown > 1) & (slowdown <= BAD_SLOWDOWN),
        (slowdown > BAD_SLOWDOWN) & (slowdown <= 2),
        (slowdown > 2) & finite,
        ~finite,
    )
    return [float(flags.mean()) for flags in classes]


def _line(place: int) -> dict[str, Any]:
    return {
        "color": _SERIES[place % len(_SERIES)],
        "linestyle": _DASHES[place % len(_DASHES)],
        "linewidth": 2.2 if place == 0 else 1.5,
        "zorder": 4 if place == 0 else 3,
    }


def _legend_above(canvas: Canvas, handles: Sequence[Any], labels: Sequence[Any]) -> None:
    canvas.legend(
        handles,
        labels,
        loc="outside upper left",
        ncols=len(labels) if len(labels) < 6 else (len(labels) + 1) // 2,
        handletextpad=0.4,
        columnspacing=1.2,
    )


def _ticks(axis: Any, places: Sequence[float], text: Callable[[float], str]) -> None:
    axis.set_major_locator(FixedLocator(places))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: text(x)))
    axis.set_minor_formatter(NullFormatter())


def _percent(share: float) -> str:
    return "none" if math.isnan(share) else f"{100 * share:.3g}%"


def _figure(name: str, svg: str, alt: str, caption: str) -> Figure:
    return Figure(name, svg, printable(alt), printable(caption))


@contextmanager
def _canvas(width: float, height: float) -> Iterator[Canvas]:
    with mpl.rc_context(_STYLE):
        yield Canvas(figsize=(width, height), layout="constrained")


def _svg(canvas: Canvas, name: str) -> str:
    """Give the drawing as an element that can stand in a page beside others."""
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # Text stays text: the reader's fonts draw it, not the one that it is measured with.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        canvas.savefig(buffer, format="svg", metadata=_NO_METADATA)
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK[1:].partition("}")[0])
    root = ElementTree.fromstring(buffer.getvalue())
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    # The page knows the figure's text by its caption's element.
    root.attrib |= {"role": "img", "aria-labelledby": f"{name}-alt", "focusable": "false"}
    # matplotlib says this in a style sheet, which would reach the whole page.
    root.attrib |= {"stroke-linejoin": "round", "stroke-linecap": "butt"}
    used = set()
    for parent in root.iter():
        for child in [child for child in parent if child.tag == f"{{{_SVG}}}style"]:
            parent.remove(child)
        for value in parent.attrib.values():
            used |= set(_REFERENCE.findall(value))
        used.add(parent.get(_LINK, "#")[1:])
    for element in root.iter():
        if element.get("id") in used:
            element.set("id", f"{name}-{element.get('id')}")
        else:
            element.attrib.pop("id", None)
        if _LINK in element.attrib:
            element.set(_LINK, f"#{name}-{element.get(_LINK, '#')[1:]}")
        for key, value in element.attrib.items():
            element.set(key, _in_page(value, name))
    return ElementTree.tostring(root, encoding="unicode")


def _in_page(value: str, name: str) -> str:
    value = _REFERENCE.sub(rf"url(#{name}-\1)", value)
    for colour, variable in _VARIABLES.items():
        value = value.replace(colour, f"var({variable})")
    return value
