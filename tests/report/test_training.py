"""What reports of a training say, on a terminal and as Markdown."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from outpace.records.training import Training
from outpace.report import training
from outpace.report.training_markdown import render_training
from outpace.report.training_terminal import print_training
from tests.report import report_trainings as made


def printed(found: Training, *, folder: str | None = None, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    print_training(found, Console(file=file, width=80), folder)
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize(
    ("make", "headline", "tone"),
    [
        (made.trained, "The best accuracy is 0.8369.", "plain"),
        (made.reached, "The target, accuracy 0.8, was reached after 33.0 s.", "good"),
        (made.missed, "The target, accuracy 0.95, was not reached: the best is 0.8369.", "warn"),
        (made.by_loss, "The best validation loss is 0.5893.", "plain"),
        (made.not_validated, "It trained for 3,012 steps, and nothing was validated.", "plain"),
        (lambda: made.trained(metric=float("nan")), "No validation gave a number.", "bad"),
        (lambda: made.trained(stopped="diverged"), "The best accuracy is 0.8369.", "bad"),
    ],
)
def test_the_verdict(make: Callable[[], Training], headline: str, tone: str) -> None:
    said = training.verdict(make())
    assert (said.headline, said.tone) == (headline, tone)


def test_how_it_ended_and_when_it_was_best() -> None:
    detail = training.verdict(made.reached()).detail
    assert "Ended by the target after 45.3 s: 3,012 steps, 30 epochs." in detail
    assert "after 45.0 s, at step 3,000 of epoch 30; the validation loss is 0.5893" in detail
    by_hand = training.verdict(made.trained(stopped="by hand")).detail
    assert by_hand.startswith("Ended by by hand after")


def test_mean_weights_have_no_row_of_their_own() -> None:
    detail = training.verdict(made.of_seeds()).detail
    assert "of several seeds' mean weights; the best one alone has 0.8369" in detail
    assert "The best came" not in detail


def test_what_was_tried_is_not_told_twice() -> None:
    said = printed(made.trained())
    assert said.count("the signal fades") == 0
    assert "✓  lsuv       0.4120 for 0.5310  better, taken" in said
    assert "✗  rate 0.03  ∞ for 0.4120       worse, left out" in said
    assert "needs two matrices" in said
    assert "one_cycle: the end is known" in said
    assert render_training(made.trained()).count("the signal fades") == 1


def test_a_long_history_is_thinned_around_its_best_and_last_row() -> None:
    rows = made.rows(1000)
    found = made.trained(history=rows, best=rows[777])
    head, cells, left_out = training.history(found)
    assert len(cells) + left_out == 1000
    assert len(cells) <= training.MOST_ROWS + 2
    assert {"778", "1,000"} <= {row[0] for row in cells}
    assert {len(row) for row in cells} == {len(head)}
    assert f"{left_out} rows between them left out" in render_training(found)


def test_a_metric_has_a_column_only_where_there_is_one() -> None:
    assert "accuracy" in training.history(made.trained())[0]
    assert training.history(made.by_loss())[0] == (*training.HISTORY, "rate")


@pytest.mark.parametrize("make", made.ALL)
def test_the_terminal_has_80_columns(make: Callable[[], Training]) -> None:
    said = printed(make())
    assert max(cell_len(line) for line in said.splitlines()) <= 80
    assert "\x1b" not in said


@pytest.mark.parametrize("make", made.ALL)
def test_a_terminal_without_blocks(make: Callable[[], Training]) -> None:
    said = printed(make(), encoding="ascii")
    assert "→" not in said
    if make is made.trained:
        assert re.search(r"accuracy +_[._:=+*#-]+#  0.2000 -> 0.8369", said)


def test_what_to_type_next() -> None:
    assert "outpace report .outpace/a -o report.html" in printed(
        made.trained(), folder=".outpace/a"
    )
    assert "outpace report" not in printed(made.trained())


@pytest.mark.parametrize("make", made.ALL)
def test_tables_in_markdown_are_whole(make: Callable[[], Training]) -> None:
    width = 0
    for line in render_training(make()).splitlines():
        bars = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("| ") else 0
        assert not (width and bars) or bars == width
        width = bars


def test_markdown_has_all_of_it_and_escapes() -> None:
    said = render_training(made.of_seeds())
    assert "# The best accuracy is 0.9900." in said
    assert "`outpace.Trainer of Net`" in said
    assert "| 30 | 3,000 | 45.0 s | 0.4893 | 0.5893 | 0.8369 | 0.0100 |" in said
    assert "| 2 | 0.8369 | 3,000 | 45.0 s |" in said
    assert "- H100, 80.0 GiB" in said
    assert "<script>" not in re.sub("`[^`]*`", "", render_training(made.nasty()))


def test_of_a_command_line_it_is_named() -> None:
    assert training.source(made.trained()) == "outpace train mine:make"
    bad = msgspec.structs.replace(made.trained(), what="a:b\x1b[31m")
    assert training.source(bad) == "outpace train a:b·[31m"
