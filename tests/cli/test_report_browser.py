"""A report as a real browser shows it. Screenshots stay in build/artefacts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

from foretune.cli import main
from foretune.predictor.report import write_report
from tests.predictor.report_samples import HOSTILE, sample_report

ARTEFACTS = Path(__file__).parents[2] / "build" / "artefacts"


@dataclass
class Visit:
    """What went on while a page was open."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def refuse(self, dialog: Dialog) -> None:
        self.complaints.append(f"a dialog: {dialog.message}")
        dialog.dismiss()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("there is no chromium (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def visit(browser: Browser, path: Path, *, width: int = 1100, dark: bool = False) -> Visit:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
    )
    visit = Visit(context.new_page())
    visit.page.on("console", lambda message: visit.complaints.append(message.text))
    visit.page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    visit.page.on("dialog", visit.refuse)
    visit.page.on("request", lambda request: visit.requests.append(request.url))
    visit.page.goto(path.as_uri(), wait_until="networkidle")
    return visit


def check_visit(visit: Visit, path: Path) -> None:
    assert not visit.complaints
    assert [url for url in visit.requests if not url.startswith("data:")] == [path.as_uri()]
    figures = visit.page.locator("figure svg")
    assert figures.count() >= 3
    for figure in figures.all():
        assert figure.is_visible()
        box = figure.bounding_box()
        assert box is not None
        assert box["width"] > 200
        assert box["height"] > 60
    # Nothing sticks out to the side; wide tables scroll within themselves.
    assert visit.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    # A colour that the style sheet lacks would draw in black.
    undefined = """[...new Set(document.body.innerHTML.match(/var\\((--[a-z0-9-]+)\\)/g))].filter(
        use => !getComputedStyle(document.documentElement).getPropertyValue(use.slice(4, -1)))"""
    assert visit.page.evaluate(undefined) == []


def screenshot(visit: Visit, name: str) -> None:
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    path = ARTEFACTS / name
    visit.page.screenshot(path=path, full_page=True)
    print(f"screenshot: {path}")


def test_a_comparison_on_a_database_is_shown(
    browser: Browser, few_databases: Path, workloads: Path, miopen_db: Path, tmp_path: Path
) -> None:
    for net in miopen_db.glob("gfx942*.tn.model"):
        few_databases.joinpath(net.name).symlink_to(net)
    path = tmp_path / "report.html"
    database = few_databases / "gfx942130.HIP.fdb.txt"
    few_databases.joinpath("gfx942130.db.txt").unlink()  # configs aren't in the report
    compare = f"compare miopen --arch gfx942 --part all --find-db {database} --db {few_databases}"
    assert main([*compare.split(), "--networks", str(workloads), "--report", str(path)]) == 0
    for name, width, dark in (
        ("report.png", 1100, False),
        ("report-dark.png", 1100, True),
        ("report-narrow.png", 390, False),
    ):
        opened = visit(browser, path, width=width, dark=dark)
        check_visit(opened, path)
        screenshot(opened, name)
        opened.page.context.close()


def test_tables_are_sorted_by_their_headers(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(sample_report(200), path)
    opened = visit(browser, path)
    table = opened.page.locator("table", has_text="Whole networks")
    column = [cell.inner_text() for cell in table.locator("th").all()].index("layers")
    header = table.locator("th").nth(column)
    for order, descending in (("ascending", False), ("descending", True)):
        header.locator("button").click()
        assert header.get_attribute("aria-sort") == order
        cells = table.locator(f"tbody td:nth-child({column + 1})").all_inner_texts()
        layers = [int(cell.partition(" ")[0]) for cell in cells]
        assert layers == sorted(layers, reverse=descending)
        assert len(set(layers)) > 1
    assert not opened.complaints
    opened.page.context.close()


def test_hostile_names_do_nothing(browser: Browser, tmp_path: Path) -> None:
    for number, text in enumerate(HOSTILE):
        path = tmp_path / f"{number}.html"
        write_report(sample_report(name=text, texts=(text,) * 4), path)
        opened = visit(browser, path, width=700)
        check_visit(opened, path)
        assert "owned" not in opened.page.title().replace(text, "")
        opened.page.context.close()
