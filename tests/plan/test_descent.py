"""The rate's way down: by whichever of clock and steps is further."""

from __future__ import annotations

import pytest

from outpace.plan.descent import Descent
from outpace.plan.schedule import RISE, rate


def begun(land: str = "linear", used: float = 0.5, steps: int = 100) -> Descent:
    descent = Descent(land)  # type: ignore[arg-type]
    descent.began = (used, steps)
    return descent


def test_the_further_of_clock_and_steps_counts() -> None:
    assert begun().advance(0.75, 100, None) == pytest.approx(0.5)
    assert begun().advance(0.55, 180, 200) == pytest.approx(0.8)
    assert begun().advance(0.95, 110, 200) == pytest.approx(0.9)
    assert begun().advance(1.2, 300, 200) == 1.0


def test_it_never_falls() -> None:
    descent = begun()
    shares = [descent.advance(used, 100, None) for used in (0.6, 0.8, 0.7, 0.5)]
    assert shares == [pytest.approx(0.2), *[pytest.approx(0.6)] * 3]


def test_of_the_scripts_own_schedule_or_of_its_largest_rate() -> None:
    assert begun("scale").rate(0.2, 0.4, 0.25, late=False) == pytest.approx(0.15)
    assert begun("linear").rate(0.2, 0.4, 0.25, late=False) == pytest.approx(0.3)


@pytest.mark.parametrize("late", [False, True])
def test_a_cycle_that_begins_late_does_not_rise(late: bool) -> None:
    first = begun("one-cycle").rate(0.4, 0.4, 0.0, late=late)
    assert first == pytest.approx(0.4 if late else 0.4 * rate("one-cycle", 0.0))
    assert begun("one-cycle", used=RISE + 0.01).late
    assert not begun("one-cycle", used=RISE - 0.01).late


def test_a_plateau_is_the_scripts_own_schedule_until_it_falls() -> None:
    """One that lowered its rate as it learnt no more, or every ten epochs, was held at the largest."""
    rates = [begun("plateau").rate(0.1, 0.4, down, late=False) for down in (0.0, 0.5, 0.9, 0.95, 1)]
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.05, 0.0])


def test_a_plateau_of_which_only_the_fall_is_left() -> None:
    rates = [begun("plateau").rate(0.4, 0.4, down, late=True, falls=True) for down in (0, 0.5, 1)]
    assert rates == [pytest.approx(0.4), pytest.approx(0.2), pytest.approx(0.0)]


def test_steps_that_turn_out_to_be_more_bring_the_rate_back() -> None:
    """A first epoch that was gone on with is shorter than those after it."""
    descent = begun("linear")
    assert descent.advance(0.1, 300, 300) == 1.0
    by_clock = descent.advance(0.11, 308, None)
    assert by_clock < 0.2
    assert descent.advance(0.05, 309, None) == by_clock


def test_a_plateau_falls_in_a_line_over_the_last_tenth() -> None:
    used = (0.0, 0.89, 0.925, 0.95, 0.975, 1.0)
    assert [rate("plateau", share) for share in used] == pytest.approx([1, 1, 0.75, 0.5, 0.25, 0])


def test_it_is_told_whether_a_rate_was_changed() -> None:
    descent = begun("plateau")
    for down, changed in ((0.5, False), (0.89, False), (0.95, True), (0.5, True)):
        descent.rate(0.2, 0.4, down, late=False)
        assert descent.changed is changed
