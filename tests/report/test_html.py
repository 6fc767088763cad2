"""The HTML report: one whole document that asks for nothing, whatever the session holds."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser

import msgspec
import pytest

from outpace.records.session import Session
from outpace.report.html import render_html
from tests.report import report_sessions as made

SECTIONS = (
    "verdict",
    "ledger",
    "arms",
    "findings",
    "predicted",
    "memory",
    "proof",
    "recipe",
    "diff",
    "machine",
)
VOID = {"meta", "link", "br", "img", "input", "hr"}
ALL = [
    made.images_tuned,
    made.images_diagnosed,
    made.quiet,
    made.no_training,
    made.failed,
    made.nasty,
]


class Page(HTMLParser):
    """What stands in a document, and whether its tags are balanced."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert not [name for name in found if name.startswith("on")]
        self.tags.append(tag)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.links += [found[name] or "" for name in ("src", "href") if name in found]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("make", ALL)
def test_is_balanced_has_all_sections_and_asks_for_nothing(make: Callable[[], Session]) -> None:
    html = render_html(make())
    page = Page(html)
    assert [name for name in page.ids if name in SECTIONS] == list(SECTIONS)
    assert len(set(page.ids)) == len(page.ids)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert not {"script", "img", "iframe", "object", "embed"} & set(page.tags)
    assert not re.search(r"url\(|@import", html)


@pytest.mark.parametrize("make", ALL)
def test_no_number_in_a_chart_is_not_a_number(make: Callable[[], Session]) -> None:
    drawn = re.findall(r'\b(?:x|x1|x2|cx|cy|y|width|points|style)="([^"]*)"', render_html(make()))
    assert drawn or make is made.no_training
    assert not [value for value in drawn if re.search("nan|inf|None", value, re.IGNORECASE)]


def test_every_chart_has_a_title() -> None:
    html = render_html(made.images_tuned())
    charts = re.findall(r'<svg[^>]*role="img"[^>]*>\s*<title>[^<]+</title>', html)
    assert len(charts) == html.count('role="img"') > 20


def test_text_from_outside_is_only_text() -> None:
    page = Page(render_html(made.nasty()))
    assert "<script>alert('x')</script>" in page.text
    assert "<img src=https://example.org/x.png onerror=alert(1)>" in page.text
    assert "\x1b" not in page.text


def test_says_what_the_session_holds() -> None:
    text = " ".join(Page(render_html(made.images_tuned())).text.split())
    for part in (
        "3.42× as fast (3.27–3.58, measured), and the training loss is proven no worse.",
        "58.6 % 34.1 s",
        "a step waits 161 ms of 231 ms for its batch",
        "measured slower: two workers and two compute threads share two cores",
        "Not measured: jemalloc (not installed).",
        "at most 0.56 % worse with 95 % confidence",
        'name = "cache_decoded"',
        "image = Image.fromarray(simplejpeg.decode_jpeg(file.read()))",
        "Watching costs +0.6 % of a step's time",
        "the disk's speed was not measured: the files were in the page cache",
    ):
        assert part in text


def test_sections_without_data_say_so() -> None:
    text = " ".join(Page(render_html(made.no_training())).text.split())
    for part in (
        "No training was found.",
        "No time was measured.",
        "No arm was measured.",
        "None: no experiment was made.",
        "No remedy was tried.",
        "Memory was not measured.",
        "No quality test was made.",
        "No recipe was made.",
        "No change to the script is proposed.",
    ):
        assert part in text


def test_a_gain_without_bounds_is_told_once() -> None:
    session = made.images_tuned()
    gain = made.measured(80.0, 20.0, 90.0)
    finding = msgspec.structs.replace(session.findings[0], gain=gain)
    session = msgspec.structs.replace(session, findings=(finding,))
    text = " ".join(Page(render_html(session)).text.split())
    assert "over 30× (20.0–over 30)" in text
    assert "over 30× 30×" not in text


def test_a_proof_that_measured_nothing_has_no_chart() -> None:
    session = made.images_tuned()
    proof = msgspec.structs.replace(
        session.proof, proven=False, difference=None, high=None, reason="a run of the proof failed"
    )
    page = render_html(msgspec.structs.replace(session, proof=proof))
    assert "Not proven: a run of the proof failed" in page
    assert "at most" not in page[page.index('id="proof"') : page.index('id="recipe"')]
