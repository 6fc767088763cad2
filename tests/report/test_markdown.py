"""Markdown, the comparison of two sessions, and the trace."""

from __future__ import annotations

import io
import re

import msgspec
import pytest
from rich.console import Console

from outpace.records.session import Session
from outpace.report.compare import compare, compare_markdown
from outpace.report.markdown import code, fenced, render_markdown, table, text
from tests.report import report_sessions as made


def test_markdown_holds_verdict_tables_recipe_and_diff() -> None:
    said = render_markdown(made.images_tuned())
    assert (
        "# 3.42× as fast (3.27–3.58, measured), and the training loss is proven no worse." in said
    )
    assert "| input | 58.6 % | 34.1 s | `image_classifier.py:61` |" in said
    assert "| input free | 70.2 ms | 3.31× (3.18–3.44) | 3.02× (2.93–3.12) |" in said
    assert "| ✗ | `loader_workers` |" in said
    assert "```toml\n" in said
    assert "```diff\n--- image_classifier.py" in said


@pytest.mark.parametrize("make", [made.images_tuned, made.nasty, made.no_training])
def test_rows_of_a_table_have_as_many_cells_as_its_head(make: type[Session]) -> None:
    width = 0
    for line in render_markdown(make()).splitlines():
        bars = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("| ") else 0
        assert not (width and bars) or bars == width
        width = bars


def test_markdown_escapes() -> None:
    assert text("a|b <b> *c* [d](e) `f`") == r"a\|b \<b\> \*c\* \[d\](e) \`f\`"
    assert code("a`b|c") == "`` a`b|c ``"
    assert table(["x"], [[code("a|b")], [text("c|d")]]).splitlines()[2:] == [
        r"| `a\|b` |",
        r"| c\|d |",
    ]
    assert code("") == ""
    assert fenced("a\n```\nb", "sh") == "````sh\na\n```\nb\n````"


def test_compare_says_what_changed() -> None:
    before = made.images_diagnosed()
    faster = msgspec.structs.replace(before.steps, median_s=0.0771)
    after = msgspec.structs.replace(before, steps=faster, bound="none", cause=None, findings=())
    file = io.StringIO()
    console = Console(file=file, width=80)
    console.print(compare(before, after))
    said = file.getvalue()
    assert "A step takes 77.1 ms instead of 231 ms: 3.00× as fast." in said
    assert "io · parse" in said
    assert "gone" in said
    assert max(map(len, said.splitlines())) <= 80
    assert "3.00× as fast" in compare_markdown(before, after)


def test_compare_bears_anything() -> None:
    sessions = (made.nasty(), made.no_training(), made.quiet())
    for before in sessions:
        for after in sessions:
            Console(file=io.StringIO(), width=80).print(compare(before, after))
            assert "\x1b" not in compare_markdown(before, after)
    assert "cannot be compared" in compare_markdown(made.quiet(), made.no_training())


def test_a_learning_that_is_ill_is_told_where_nothing_is_slow() -> None:
    ill = msgspec.structs.replace(made.nasty(), findings=(), bound="none", cause=None)
    assert ill.learning
    assert f"({ill.learning[0].severity})" in render_markdown(ill)
    assert "None: no experiment was made." in render_markdown(made.no_training())


def test_names_keep_their_underscores() -> None:
    assert text("at Net.__call__ of pin_memory") == r"at Net.\_\_call\_\_ of pin_memory"
