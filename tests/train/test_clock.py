"""Shares and ends, on a clock that the test moves."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.train.clock import Clock
from tests.train.toys import Time


def run(clock: Clock, time: Time, step_s: float, most: int = 10_000) -> int:
    """Steps until it is over."""
    steps = 0
    while clock.over(steps) is None and steps < most:
        time.s += step_s
        steps += 1
        clock.step_ended(steps)
    return steps


def test_steps_end_it() -> None:
    time = Time()
    clock = Clock(None, 10, time)
    assert run(clock, time, 1.0) == 10
    assert (clock.used, clock.over(10)) == (1.0, "steps")


def test_what_an_ending_takes_is_known_after_a_resume_before_the_first_validation() -> None:
    """Steps have become eight times as long as those that its validation was reckoned in."""
    time = Time()
    first, again = Clock(1000.0, None, time), Clock(1000.0, None, time)
    for clock in (first, again):
        clock.validation_steps = 80.0
    first.validation_steps /= 8
    run(first, time, 1.0, most=20)
    again.load_state_dict(first.state_dict())
    assert again.ending_s == first.ending_s == pytest.approx(11.0)
    assert again.over(20) is None


@settings(max_examples=30)
@given(st.floats(0.05, 2.0), st.floats(0.0, 5.0), st.floats(0.0, 5.0))
def test_what_the_ending_takes_is_kept_free(step_s: float, validation: float, save: float) -> None:
    time = Time()
    clock = Clock(60.0, None, time)
    clock.validation_s, clock.save_s = validation, save
    run(clock, time, step_s)
    free = 60.0 - (time.s - 100.0)
    assert validation + save <= free + 1e-6
    assert free <= 1.1 * (validation + save) + 2 * step_s + 1e-6
    assert clock.used == pytest.approx(1.0, abs=2 * step_s / 40)


def test_a_pause_is_no_reason_to_end() -> None:
    time = Time()
    clock = Clock(100.0, None, time)
    for step in range(1, 41):
        time.s += 30.0 if step == 40 else 1.0
        clock.step_ended(step)
    assert clock.over(40) is None
    assert clock.step_s == 1.0


def test_the_share_never_falls() -> None:
    time = Time()
    clock = Clock(100.0, None, time)
    used = []
    for step in range(1, 80):
        time.s += 1.0
        clock.validation_s = 20.0 if 10 < step < 20 else 0.0
        clock.step_ended(step)
        used.append(clock.used)
    assert used == sorted(used)


def test_time_or_steps_whichever_is_more() -> None:
    time = Time()
    clock = Clock(100.0, 10, time)
    time.s += 30.0
    clock.step_ended(1)
    assert clock.used == pytest.approx(0.3)
    clock.step_ended(5)
    assert clock.used == pytest.approx(0.5)
    assert clock.left_s(5) == pytest.approx(30.0)


def test_start_up_is_no_part_of_the_course() -> None:
    time = Time()
    clock = Clock(100.0, None, time)
    time.s += 20.0
    clock.start()
    time.s += 40.0
    clock.step_ended(1)
    assert clock.used == pytest.approx(0.5)
    assert clock.over(1) is None


def test_it_goes_on_with_another_number_of_steps() -> None:
    time = Time()
    clock = Clock(None, 100, time)
    clock.set_end(100, "steps", 0)
    run(clock, time, 1.0, most=50)
    time.s += 1000.0
    other = Clock(None, 70, time)
    other.load_state_dict(clock.state_dict())
    other.set_end(70, "steps", 50)
    assert other.read() == pytest.approx(50.0)
    assert other.by_steps(50) == pytest.approx(0.5)
    assert other.by_steps(60) == pytest.approx(0.75)
    assert other.by_steps(70) == pytest.approx(1.0)


def test_the_last_of_another_number_of_steps_is_the_whole_share() -> None:
    for step in range(1, 12):
        clock = Clock(None, None, Time())
        clock.set_end(12, "steps", 0)
        clock.step_ended(step)
        clock.set_end(23, "steps", step)
        clock.step_ended(23)
        assert clock.used == 1.0


def test_no_end_in_sight() -> None:
    time = Time()
    clock = Clock(now=time)
    assert run(clock, time, 1.0, most=20) == 20
    assert (clock.used, clock.left_s(20)) == (0.0, math.inf)


@pytest.mark.parametrize("stalled", [(40,), (37, 39), (36, 38, 40)])
def test_what_a_validation_takes_is_not_reckoned_by_pauses(stalled: tuple[int, ...]) -> None:
    time = Time()
    clock = Clock(1000.0, None, time)
    clock.validation_steps = 80.0
    for step in range(1, 41):
        time.s += 30.0 if step in stalled else 1.0
        clock.step_ended(step)
    assert clock.over(40) is None
    assert clock.ending_s == pytest.approx(1.1 * 80.0)


def test_what_a_validation_takes_is_not_known_before_a_dozen_steps() -> None:
    time = Time()
    clock = Clock(1000.0, None, time)
    clock.validation_steps = 80.0
    run(clock, time, 1.0, most=11)
    assert (clock.ending_s, clock.step_s) == (0.0, 1.0)
    run(clock, time, 1.0, most=1)
    assert clock.ending_s == pytest.approx(1.1 * 80.0)


def test_a_validation_is_kept_free_where_no_dozen_steps_fit() -> None:
    time = Time()
    clock = Clock(60.0, None, time)
    clock.validation_steps = 5.0
    assert run(clock, time, 6.0) < 6
    assert clock.left_s(0) >= 1.1 * 5 * 6.0


def test_it_goes_on_from_what_an_earlier_version_kept() -> None:
    time = Time()
    clock, again = Clock(100.0, None, time), Clock(100.0, None, time)
    run(clock, time, 1.0, most=20)
    state = clock.state_dict()
    assert len(state["recent"]) == 12
    state["recent"] = state["recent"][-5:]
    again.load_state_dict(state)
    assert (again.step_s, again.pace_s) == (1.0, 0.0)


def gone_on(before: float, after: float, at: int, starting: float = 0.0) -> tuple[Clock, Time]:
    """A clock of so many seconds ``at`` a step of one, and what goes on from there with others, for which
    ``starting`` takes a while.
    """
    time = Time()
    first = Clock(before, None, time)
    run(first, time, 1.0, most=at)
    time.s += 1000.0
    again = Clock(after, None, time)
    time.s += starting
    again.load_state_dict(first.state_dict())
    return again, time


@pytest.mark.parametrize("after", [200.0, 95.0])
def test_with_another_budget_the_share_goes_on_to_the_new_end(after: float) -> None:
    clock, time = gone_on(100.0, after, 90)
    assert clock.used == pytest.approx(0.9)
    used = []
    for step in range(91, int(after) + 1):
        time.s += 1.0
        clock.step_ended(step)
        used.append(clock.used)
    left = after - 90.0
    assert used == pytest.approx([0.9 + 0.1 * i / left for i in range(1, int(left) + 1)])
    assert clock.longer == (after > 100.0)


def test_after_another_resume_it_goes_on_so() -> None:
    clock, time = gone_on(100.0, 200.0, 50)
    for step in range(51, 126):
        time.s += 1.0
        clock.step_ended(step)
    again = Clock(200.0, None, time)
    again.load_state_dict(clock.state_dict())
    assert again.used == pytest.approx(0.75)
    time.s += 30.0
    again.step_ended(126)
    assert again.used == pytest.approx(0.85)


def test_what_comes_before_it_goes_on_counts() -> None:
    clock, _ = gone_on(100.0, 100.0, 50, starting=7.0)
    assert (clock.elapsed, clock.read()) == (57.0, 57.0)


def test_steps_in_the_place_of_a_budget_go_on_from_its_share() -> None:
    time = Time()
    first = Clock(60.0, None, time)
    first.set_end(None, None, 0)
    run(first, time, 0.1, most=300)
    share = first.used
    again = Clock(None, 3000, time)
    again.load_state_dict(first.state_dict())
    again.set_end(3000, "steps", 300)
    used = []
    for step in range(301, 3001):
        time.s += 0.1
        again.step_ended(step)
        used.append(again.used)
    assert used[0] == pytest.approx(share + (1 - share) / 2700)
    assert used[1349] == pytest.approx(share + (1 - share) / 2)
    assert used[-1] == 1.0


def test_a_budget_in_the_place_of_epochs_goes_on_from_their_share() -> None:
    time = Time()
    first = Clock(3600.0, None, time)
    first.set_end(1000, "epochs", 0)
    run(first, time, 1.0, most=500)
    assert first.used == pytest.approx(0.5)
    again = Clock(3600.0, None, time)
    again.load_state_dict(first.state_dict())
    again.set_end(None, None, 500)
    time.s += 31.0
    again.step_ended(501)
    assert again.used == pytest.approx(0.5 + 0.5 * 31 / 3100, rel=1e-3)


def test_what_is_left_after_more_was_asked_for() -> None:
    time = Time()
    first = Clock(None, None, time)
    first.set_end(20, "epochs", 0)
    first.start()
    run(first, time, 1.0)
    again = Clock(None, None, time)
    again.load_state_dict(first.state_dict())
    again.set_end(40, "epochs", 20)
    assert again.left_s(20) == pytest.approx(20.0)
