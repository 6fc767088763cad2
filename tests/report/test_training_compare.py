"""Two trainings side by side."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from outpace.errors import UsageError
from outpace.report.compare import compare, compare_markdown
from outpace.report.training_compare import headline
from tests.report import report_trainings as made
from tests.report.report_sessions import images_diagnosed


def test_the_time_to_one_target_comes_first() -> None:
    before, after = made.reached(), made.trained(target=0.8, time_to_target_s=11.0)
    assert headline(before, after) == (
        "The target was reached after 11.0 s instead of 33.0 s: 3.00× as fast."
    )
    other = made.trained(target=0.7, time_to_target_s=11.0)
    assert "The best accuracy is" in headline(before, other)
    assert "3.00×" not in compare_markdown(before, other)


def test_better_is_larger_or_smaller_as_the_metric_has_it() -> None:
    one, other = made.trained(metric=0.5), made.trained(metric=0.6)
    assert headline(one, other).endswith("0.6000 instead of 0.5000: better.")
    assert headline(other, one).endswith("worse.")
    assert headline(one, one).endswith("the same.")
    low, high = (made.trained(metric=m, larger_is_better=False) for m in (0.5, 0.6))
    assert headline(high, low).endswith("better.")


def test_different_measures_are_not_compared() -> None:
    one, other = made.trained(), made.by_loss()
    assert headline(one, other) == "What they came to cannot be compared."
    assert "| best | accuracy 0.8369 | validation loss 0.5893 |  |" in compare_markdown(one, other)


def test_a_target_that_one_missed() -> None:
    said = compare_markdown(made.reached(), made.missed())
    assert "| target reached after | 33.0 s | not reached |  |" in said
    assert "| 33.0 s | no target |  |" in compare_markdown(made.reached(), made.trained())


@pytest.mark.parametrize("make", made.ALL)
def test_it_bears_anything(make: type) -> None:
    for pair in ((make(), made.trained()), (made.trained(), make())):
        Console(file=io.StringIO(), width=80).print(compare(*pair))
        assert "\x1b" not in compare_markdown(*pair)


def test_a_training_and_a_diagnosis_are_refused() -> None:
    with pytest.raises(UsageError, match="the second session is a training"):
        compare(images_diagnosed(), made.trained())
    with pytest.raises(UsageError, match="the first session is a training"):
        compare_markdown(made.trained(), images_diagnosed())
