"""The HTML report in a real browser: no error, no request, nothing that runs over the page."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace as replace_asked
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from msgspec.structs import replace

from outpace.plan.question import Question, answer
from outpace.records.session import Session
from outpace.records.training import Training
from outpace.report import write_report
from outpace.report.plan_html import render_plan
from tests.report import report_sessions as made
from tests.report import report_trainings as trainings
from tests.report.test_html import SECTIONS
from tests.report.test_plan_html import PLAN, option
from tests.report.test_training_html import SECTIONS as OF_TRAINING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WIDER_THAN_PAGE = """() => [...document.querySelectorAll('body *')]
    .filter(e => !e.closest('pre, .scroll, svg') && e.getBoundingClientRect().right > innerWidth + 1)
    .map(e => e.outerHTML.slice(0, 80))"""
BACKGROUND = "() => getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium or Chrome is installed")
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.mark.parametrize(
    ("make", "sections"),
    [
        *((make, SECTIONS) for make in (made.images_tuned, made.no_training, made.nasty)),
        *((make, OF_TRAINING) for make in (trainings.of_seeds, trainings.empty, trainings.nasty)),
    ],
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_opens_cleanly(
    browser: Browser,
    tmp_path: Path,
    make: Callable[[], Session | Training],
    sections: Sequence[str],
    scheme: Literal["light", "dark"],
    width: int,
) -> None:
    path = tmp_path / "report.html"
    write_report(make(), path)
    check(browser, path, sections, scheme, width)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_a_plan_opens_cleanly(
    browser: Browser, tmp_path: Path, scheme: Literal["light", "dark"], width: int
) -> None:
    asked = Question(params=1e9, tokens=40e9)
    plan, law = answer(asked)
    long = option(" ".join(["a change with a name that goes on"] * 4), 1.0, 40.0)
    plan = replace(plan, forecast=PLAN.forecast, options=(long, *(PLAN.options or ())))
    said = ["as said", "  " + "its parts " * 30]
    path = tmp_path / "plan.html"
    path.write_text(render_plan(replace_asked(asked, usd_per_hour=2.0), plan, law, said))
    check(browser, path, ("verdict", "pareto", "options", "isoloss"), scheme, width)


def check(
    browser: Browser,
    path: Path,
    sections: Sequence[str],
    scheme: Literal["light", "dark"],
    width: int,
) -> None:
    """A page says nothing on the console, asks for nothing, and lies within its window."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [path.as_uri()]
    assert all(page.locator(f"section#{section}").is_visible() for section in sections)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(WIDER_THAN_PAGE) == []
    red = int(page.evaluate(BACKGROUND).removeprefix("rgb(").split(",")[0])
    assert red > 200 if scheme == "light" else red < 60
    page.close()
