"""Reports: their numbers, and that no text of unknown origin breaks the page."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.predictor.report import render_report, write_report
from foretune.predictor.report.text import printable, shorten
from tests.predictor.report_samples import HOSTILE, sample_report

VOID = {"meta", "link", "br", "img"}


class _Page(HTMLParser):
    """A page's elements and words, as a browser sees them; unbalanced tags are an error."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words = ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


@cache
def _plain_page() -> _Page:
    return _Page(render_report(sample_report()))


def check_page(page: str) -> _Page:
    """Whatever the texts are, the page has the same elements, and reaches for nothing."""
    seen = _Page(page)
    plain = _plain_page()
    for tag in ("script", "style", "svg", "img", "table", "article", "figure", "meta", "h2"):
        assert seen.count(tag) == plain.count(tag), tag
    ids = [attributes["id"] for _, attributes in seen.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in seen.tags:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        for name in ("href", "xlink:href", "src"):
            target = attributes.get(name, "#")
            assert target == "data:," or target[1:] in ["", *ids], (tag, attributes)
        for label in attributes.get("aria-labelledby", "").split():
            assert label in ids
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", page)
    return seen


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_stay_text(text: str) -> None:
    data = sample_report(name=text, texts=(text, text, text, text))
    words = check_page(render_report(data)).words
    assert printable(text) in words


@given(st.lists(st.text(), min_size=5, max_size=5))
@settings(max_examples=4, deadline=None)
def test_any_text_stays_text(texts: list[str]) -> None:
    name, *others = texts
    data = sample_report(9, name=name, texts=tuple(others))
    page = _Page(render_report(data))
    assert page.count("script") == page.count("style") == 1
    assert printable(f"because {others[0]}") in page.words


def test_every_figure_says_what_it_shows() -> None:
    page = check_page(render_report(sample_report()))
    names = [a["aria-labelledby"] for tag, a in page.tags if tag == "svg"]
    assert len(names) == 6
    assert "Share of problems slower than a given slowdown: model net" in page.words
    assert "Efficiency of each layer of net." in page.words


def test_numbers_are_those_of_the_picks() -> None:
    data = sample_report(400)
    slow = data.model.times / data.best
    finite = slow[np.isfinite(slow)]
    words = _Page(render_report(data)).words
    assert f"{np.exp(np.log(finite).mean()):.4f}" in words
    outcome = data.delivered(0.05)
    assert outcome.coverage == data.accepted[0.05].mean()
    assert f"{outcome.coverage:.1%}" in words
    assert "2.0 h becomes 30 s" in words
    assert "99.6%" in words
    network = data.networks[0]
    expected = sum(layer.count * layer.tuned_ms for layer in network.layers)
    assert network.tuned_ms() == pytest.approx(expected)
    assert f"{expected:.4g}" in words
    assert "≥ 3x problem net" in words


def test_the_risk_curve_ends_where_all_sure_picks_are_accepted() -> None:
    data = sample_report(300)
    rows = np.ones(300, bool)
    coverage, risk = data.risk_curve(rows)
    assert (np.diff(coverage) > 0).all()
    assert coverage[-1] == pytest.approx(data.sure.mean())
    assert risk[-1] == pytest.approx(data.bad[data.sure].mean())
    # A threshold's point lies on the curve: acceptance is by score alone.
    sure = replace(data, sure=rows)
    coverage, risk = sure.risk_curve(rows)
    point = sure.operating_point(rows, 0.05)
    at = int(np.searchsorted(coverage, point[0] - 1e-12))
    assert (coverage[at], risk[at]) == pytest.approx(point)


@pytest.mark.parametrize("problems", [1, 2])
def test_a_report_of_few_problems(problems: int) -> None:
    data = replace(sample_report(problems, default=False), networks=[], worst=[])
    page = _Page(render_report(data))
    assert page.count("svg") == 3
    assert page.count("article") == 0


def test_a_model_that_lists_nothing_is_reported() -> None:
    data = sample_report(20)
    nothing = replace(data.pickers[0], times=np.full(20, np.inf))
    none = dict.fromkeys(data.accepted, np.zeros(20, bool))
    report = replace(data, pickers=[nothing, *data.pickers[1:]], accepted=none)
    assert "accepts nothing" in _Page(render_report(report)).words


def test_what_does_not_fit_together_is_refused() -> None:
    data = sample_report()
    with pytest.raises(ValueError, match="the same number of problems"):
        replace(data, best=data.best[1:])
    with pytest.raises(ValueError, match="stated risk"):
        replace(data, risk=0.07)
    with pytest.raises(ValueError, match="no picker"):
        replace(data, default="nobody")


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    data = sample_report()
    path = tmp_path / "report.html"
    write_report(data, path)
    assert path.read_text(encoding="utf-8") == render_report(data)
    with pytest.raises(InputError, match="this is a directory"):
        write_report(data, tmp_path)
    assert [found.name for found in tmp_path.iterdir()] == ["report.html"]


def test_labels_of_figures_are_short() -> None:
    assert len(shorten("a" * 99, 20)) == 20
    assert shorten("two\nlines", 20) == "two lines"
