"""How long the rest takes: steady, noisy and slowed machines, with pauses between the steps."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.plan.pace import Pace


def paced(times: list[float], pace: Pace | None = None) -> Pace:
    pace = pace or Pace()
    for seconds in times:
        pace.note(seconds)
    return pace


@settings(max_examples=50)
@given(st.floats(1e-4, 20.0), st.integers(20, 400))
def test_steady_steps(step_s: float, count: int) -> None:
    left = paced([step_s] * count).left(1000)
    assert left.estimate == pytest.approx(1000 * step_s, rel=1e-6)
    assert left.low < left.estimate < left.high


def test_groups_of_short_steps_count_as_their_steps() -> None:
    one, many = Pace(), Pace()
    for _ in range(300):
        many.note(0.01, 16)
        for _ in range(16):
            one.note(0.01)
    assert many.steps == one.steps == 4800
    assert many.left(100).estimate == pytest.approx(one.left(100).estimate)


def test_a_machine_that_slows_down_for_good_is_believed_soon() -> None:
    pace = paced([0.1] * 1000 + [0.2] * 100)
    assert pace.changes == 1
    assert pace.step_s == pytest.approx(0.2, rel=0.02)
    assert pace.left(100).estimate == pytest.approx(20.0, rel=0.02)


def test_an_epochs_last_batch_is_no_measure_of_the_others() -> None:
    """It has few samples: what a step takes on a machine of half the speed was taken for half of that."""
    pace = paced(([0.1] * 70 + [0.01]) * 4 + [0.2] * 100)
    assert pace.usual_s == pytest.approx(0.2, rel=0.02)


def test_a_machine_that_crawls_slows_a_validation_down_less_than_steps() -> None:
    pace = paced([0.1] * 280 + [1.0] * 100)
    assert pace.usual_s == pytest.approx(0.3, rel=0.02)


def test_the_first_steps_do_not_stand_for_the_others() -> None:
    """Sixteen warm up over more than a second, and those after it are hardly seen: no second block yet."""
    pace = paced([0.15] * 8 + [0.1] * 9)
    assert pace.warming
    assert pace.left(1000).estimate == pytest.approx(100.0, rel=0.06)


def test_one_long_step_is_no_change() -> None:
    pace = paced([0.1] * 500 + [30.0] + [0.1] * 200)
    assert pace.changes == 0
    # 30 s in 701 steps were lost, and may be again, never or twice.
    left = pace.left(100)
    assert left.estimate == pytest.approx(10.0 + 30 / 7, rel=0.01)
    assert left.low < 10.0 < 10.0 + 60 / 7 < left.high


def test_stalls_of_single_steps_count_once() -> None:
    """A step in a hundred takes 2 s, as where the script judges or saves unseen: 1.2 s in ten steps."""
    pace = paced(([0.1] * 99 + [2.1]) * 100)
    left = pace.left(1000)
    assert left.estimate == pytest.approx(120.0, rel=0.03)
    assert left.low <= 120.0 <= left.high


def test_an_early_stall_is_not_sure_to_come_again() -> None:
    pace = paced([0.1] * 45 + [3.1] + [0.1] * 10)
    assert pace.left(9_900).low < 1_010.0


def test_an_early_pause_is_not_sure_to_come_again() -> None:
    """A look at a few batches at the tenth step, at once a reason to lower the rate."""
    once = paced([0.1] * 10)
    once.note(10.1, clean=False)
    once = paced([0.1] * 10, once)
    assert once.left(980).low < 100.0
    assert once.left(980).estimate > 500.0
    between_epochs = paced([0.1] * 10)
    between_epochs.note(10.1, clean=False, begins=True)
    assert paced([0.1] * 10, between_epochs).left(980).low > 400.0
    once.note(10.1, clean=False)
    assert paced([0.1] * 10, once).left(980).low > 400.0


def test_validation_is_counted_by_the_epoch() -> None:
    pace = Pace()
    for epoch in range(3):
        for step in range(50):
            first = step == 0
            pace.note(0.1 + (2.0 if first and epoch else 0.0), clean=not first)
    # Two validations were seen in 100 steps; 100 more steps have two as well.
    assert pace.left(100).estimate == pytest.approx(14.0, rel=0.01)
    assert pace.pause_s.middle == pytest.approx(2.0, rel=0.01)


def test_a_validation_since_the_machine_slowed_down_tells_how_long_the_next_takes() -> None:
    pace = Pace()
    # Steps take three times as long from the third epoch on, validations twice as long.
    for step_s, validation_s in ((0.1, 2.0), (0.1, 2.0), (0.3, 4.0), (0.3, 4.0)):
        for _ in range(50):
            pace.note(step_s)
        pace.note(step_s + validation_s, clean=False)
    assert pace.changes == 1
    assert pace.pause_s.middle == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize(("before_s", "after_s"), [(0.1, 0.2), (0.2, 0.1)])
def test_a_validation_in_which_the_machine_changed_its_speed_tells_two_bounds(
    before_s: float, after_s: float
) -> None:
    """All of it at the speed of the steps before, or of those after: it was told as the first."""
    pace = paced([0.1] * 200 + [before_s] * 50)
    pace.note(before_s + 3.0, clean=False)
    for _ in range(50):
        pace.note(after_s)
    for _ in range(50):
        pace.note(0.2)
    assert pace.step_s == pytest.approx(0.2, rel=0.03)
    assert pace.pause_s is not None
    assert pace.pause_s == pytest.approx((3.0, 6.0), rel=0.05)
    assert pace.pause_s.nearest(4.5) == 4.5
    assert pace.pause_s.nearest(0.0) == pace.pause_s.low


def test_a_validation_that_was_not_seen_yet_is_taken_as_told_and_doubted() -> None:
    pace = paced([0.1] * 100)
    told, silent = pace.left(100, pauses_s=5.0), pace.left(100)
    assert told.estimate == pytest.approx(silent.estimate + 5.0)
    assert told.high - told.low > silent.high - silent.low + 5.0


def test_a_first_validation_that_took_much_longer_than_the_others() -> None:
    """It made the samples that the others find kept: by it alone each of them would take 20 s."""
    pace = Pace()
    for epoch in range(10):
        for _ in range(30):
            pace.note(0.1)
        pace.note(0.1 + (0.15 if epoch else 20.0), clean=False)
    assert pace.pause_s.middle == pytest.approx(0.15)
    left = pace.left(310)
    assert left.estimate == pytest.approx(31.0 + 1.5, rel=0.05)
    assert left.high > 31.0 + 20.0


def test_a_pause_that_does_not_come_again_is_not_expected_for_ever() -> None:
    pace = paced([0.1] * 20)
    pace.note(5.1, clean=False)
    assert pace.left(1000).estimate > 300.0  # it may well come each 20 steps
    for _ in range(500):
        pace.note(0.1)
    assert pace.pause_s is None
    left = pace.left(1000)
    assert left.estimate == pytest.approx(100.0, rel=0.02)
    assert left.high > 109.0


def test_pauses_that_come_in_pairs_are_expected_again() -> None:
    """At an epoch's end and at the next one's first step."""
    pace = Pace()
    for _ in range(4):
        for _ in range(100):
            pace.note(0.1)
        for seconds in (5.1, 3.1):
            pace.note(seconds, clean=False)
    for _ in range(50):
        pace.note(0.1)
    assert pace.pause_s.middle == pytest.approx(5.0)
    assert pace.left(1000).estimate == pytest.approx(100.0 + 80.0, rel=0.2)


def test_steps_that_grow_and_grow_are_not_taken_for_what_comes_and_goes() -> None:
    pace = paced([0.1] * 300 + [0.2] * 300 + [0.4] * 100)
    assert pace.changes == 2
    assert pace.left(100).estimate == pytest.approx(40.0, rel=0.05)
    pace = paced([0.1] * 300 + [0.2] * 300 + [0.1] * 300)
    assert pace.left(100).estimate == pytest.approx(10.0 * 4 / 3, rel=0.1)


def test_pauses_that_come_again_late_are_expected_again() -> None:
    pace = paced([0.1] * 20)
    pace.note(5.1, clean=False)
    for _ in range(3):
        for _ in range(200):
            pace.note(0.1)
        pace.note(5.1, clean=False)
    assert pace.pause_s.middle == pytest.approx(5.0)
    assert pace.left(603).estimate == pytest.approx(60.3 + 3 * 5.0, rel=0.35)


def test_start_up_is_no_pause() -> None:
    pace = Pace()
    for index in range(100):
        pace.note(3.0 if index < 2 else 0.1, clean=index > 1)
    assert pace.left(100).estimate == pytest.approx(10.0, rel=0.01)


def test_intervals_hold_four_in_five_where_the_machine_is_noisy() -> None:
    """A step's time wanders, as beside other processes: neighbours are alike."""
    chance, held = random.Random(1), 0
    for _ in range(200):
        level, times = 0.0, []
        for _ in range(4000):
            level = 0.995 * level + chance.gauss(0, 0.01)
            times.append(0.05 * 2.718 ** (level + chance.gauss(0, 0.1)))
        left = paced(times[:1000]).left(3000)
        held += left.low <= sum(times[1000:]) <= left.high
    assert 150 <= held <= 200


@pytest.mark.parametrize("slower", [1.6, 3.0])
def test_programs_that_come_and_go_are_in_the_mean_and_in_the_interval(slower: float) -> None:
    """One takes a core for up to 8 s, and leaves it for as long. By the last seconds alone 3 in 10 held."""
    chance, held, off = random.Random(0), 0, []
    for _ in range(30):
        steps: list[float] = []
        busy, until = True, 0.0
        while len(steps) < 600:
            if until <= 0.0:
                busy, until = not busy, chance.uniform(0.5, 8.0)
            steps.append(0.4 * (slower if busy else 1.0) * chance.lognormvariate(0, 0.03))
            until -= steps[-1]
        pace = Pace()
        for index, seconds in enumerate(steps):
            if index and index % 60 == 0:
                left = pace.left(len(steps) - index)
                to_come = sum(steps[index:])
                held += left.low <= to_come <= left.high
                off.append(abs(left.estimate / to_come - 1))
            pace.note(seconds)
    assert held > 0.75 * 9 * 30
    assert sorted(off)[len(off) // 2] < 0.08


def test_the_last_second_tells_the_next_step_and_one_stall_does_not() -> None:
    pace = paced([0.1] * 50 + [0.02, 0.08] * 20)
    assert pace.recent_s == pytest.approx(0.05, rel=0.05)
    assert paced([0.1] * 50 + [30.0] + [0.1] * 3).recent_s < 0.2


@pytest.mark.parametrize("seen", [True, False])
def test_pauses_that_are_evenly_apart_tell_when_the_next_one_comes(seen: bool) -> None:
    pace = Pace()
    told = []
    for index in range(190):
        pauses = index % 40 == 39
        pace.note(0.1 + 2.0 * pauses, clean=not (pauses and seen))
        told.append(pace.cycle and pace.cycle[:2])
    assert told[:119] == [None] * 119
    assert told[119:122] == [(39, 40), (38, 40), (37, 40)]
    assert told[158] == (0, 40)
    assert told[159] == (39, 40)
    assert pace.cycle is not None
    assert pace.cycle.seconds == pytest.approx(2.0, rel=0.1 if seen else 0.5)
    pace.note(2.1, clean=False)
    assert pace.cycle is None


def test_a_full_evaluation_is_reckoned_with_among_quick_ones() -> None:
    """Each fifth takes 60 s: the last three, of 1 s, were all that was known of them."""
    pace = Pace()
    for index in range(1, 450):
        pauses = index % 50 == 0
        full = index % 250 == 0
        pace.note(0.1 + pauses * (60.0 if full else 1.0), clean=not pauses)
    assert pace.pause_s is not None
    assert pace.pause_s.middle == pytest.approx(60.0)


def test_a_full_evaluation_that_does_not_come_again_is_not_reckoned_with_for_ever() -> None:
    pace = Pace()
    for index in range(1, 800):
        pauses = index % 50 == 0
        pace.note(0.1 + pauses * (60.0 if index == 250 else 1.0), clean=not pauses)
        if index == 450:
            assert pace.pause_s is not None
            assert pace.pause_s.middle == pytest.approx(60.0)
    assert pace.pause_s.middle == pytest.approx(1.0)


def test_the_next_of_quick_evaluations_may_be_a_full_one() -> None:
    """Of each 50 steps one, and after 250 a full one: until that is due the next is quick."""
    pace, told = Pace(), {}
    for index in range(1, 500):
        pauses = index % 50 == 0
        pace.note(0.1 + pauses * (60.0 if index % 250 == 0 else 1.0), clean=not pauses)
        told[index] = pace.cycle and (pace.cycle.left, round(pace.cycle.seconds))
    assert told[410] == (39, 1)
    assert told[460] == (39, 60)
