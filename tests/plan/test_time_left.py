"""What the end of a script takes, and so how much time is for steps."""

from __future__ import annotations

import pytest

from outpace.measure.length import Loop
from outpace.plan.countdown import Countdown
from outpace.plan.outlook import Outlook
from outpace.plan.pace import Cycle
from outpace.plan.time_left import (
    EXIT_S,
    LAUNCHER_S,
    LEAST_MARGIN_S,
    MARGIN,
    MARGIN_AFTER_S,
    UNSEEN,
    UNTOUCHED,
    VARY,
    TimeLeft,
)
from outpace.seams.host import Step
from outpace.seams.loader_record import Record
from outpace.seams.phases import NAMES
from tests.plan.hosts import fed_by

STEP_S, VALIDATION_S = 0.1, 2.0


def left(budget: float = 100.0, *, ranks: int = 1) -> TimeLeft:
    """Before the last step of an epoch of ten."""
    outlook = Outlook(fed_by(Record(trains=True, length=10, given=9)))
    for _ in range(200):
        outlook.pace.note(STEP_S)
    outlook.pace.note(STEP_S + VALIDATION_S, clean=False)
    return TimeLeft(Countdown(0.0, seconds=budget, now=lambda: 0.0), outlook, ranks)


def test_the_end_is_a_validation_and_the_processes_own() -> None:
    time = left()
    expected = EXIT_S + VARY * VALIDATION_S + MARGIN * (100 - MARGIN_AFTER_S)
    assert time.ending() == pytest.approx(expected)
    assert time.for_steps() == pytest.approx(100 - expected)
    assert left(ranks=2).ending() == pytest.approx(expected + LAUNCHER_S)
    time.outlook.evaluates = True
    time.saved_s, time.written_s = 3.0, 2.0
    assert time.ending() == pytest.approx(expected + VARY * VALIDATION_S + 5.0)


def test_a_forecast_holds_the_end_of_the_process_and_a_last_validation() -> None:
    time = left()
    assert time.finish() is None  # nothing tells how long it trains
    time.outlook.total = lambda: 300  # type: ignore[method-assign]
    steps, whole = time.outlook.finish(), time.finish()
    assert steps is not None
    assert whole is not None
    assert whole.estimate - steps.estimate == pytest.approx(EXIT_S)
    time.outlook.evaluates = True
    whole = time.finish()
    assert whole is not None
    assert whole.low - steps.low == pytest.approx(EXIT_S + VARY * VALIDATION_S)


def test_validations_that_were_never_seen_leave_time_for_steps() -> None:
    """That after an epoch and that at the script's end: half of the time was kept for the two."""
    outlook = Outlook(fed_by(Record(trains=True, length=10, given=9)))
    outlook.evaluates = True
    outlook.validation = lambda: 80.0  # type: ignore[method-assign]
    time = TimeLeft(Countdown(0.0, seconds=100.0, now=lambda: 0.0), outlook)
    assert time.ending() == pytest.approx(EXIT_S + UNSEEN * 100.0 + MARGIN * (100 - MARGIN_AFTER_S))


@pytest.mark.parametrize(
    ("loops", "follows"),
    [
        ([Loop(None, False, while_=True)], False),
        ([Loop(9, True)], False),
        ([Loop(9, True), Loop(9, True)], True),
        ([Loop(None, False, loader=True)], True),
        ([Loop(None, False)], True),
    ],
    ids=["while", "steps", "steps of epochs", "batches", "something else"],
)
def test_where_steps_are_counted_nothing_follows_an_epoch(loops: list[Loop], follows: bool) -> None:
    """Batches come from an iterator that the script draws from by itself, and it has validated in between."""
    time = left()
    assert time.judging() == pytest.approx(VARY * VALIDATION_S), "it may come with the epoch's end"
    time.outlook.course.loops, time.outlook._within = loops, 1
    assert time.judging() == pytest.approx(VARY * VALIDATION_S * follows)
    assert time.until_next_chance(goes_on=False) == pytest.approx(
        STEP_S + VARY * VALIDATION_S * follows
    )


def test_an_epochs_validation_comes_before_the_next_chance() -> None:
    assert left().until_next_chance(goes_on=True) == pytest.approx(STEP_S)
    assert left().until_next_chance(goes_on=False) == pytest.approx(STEP_S + VARY * VALIDATION_S)


@pytest.mark.parametrize("within_s", [None, 1e-6])
@pytest.mark.parametrize("budget", [20.0, 20.5, 21.0, 21.5, 22.0, 22.5, 23.0])
def test_the_last_step_is_not_followed_by_a_validation_that_is_not_over(
    budget: float, within_s: float | None
) -> None:
    """Also where quick ones come within epochs."""
    time = left(budget)
    if within_s is not None:
        time.outlook.cycle = lambda: Cycle(2, 5, within_s)  # type: ignore[method-assign]
    assert time.until_last_step(longer=True) == pytest.approx(time.for_steps(), abs=1e-5)
    last = time.until_last_step(longer=False)
    assert last <= time.for_steps()
    into = (last + 9 * STEP_S) % (10 * STEP_S + VARY * VALIDATION_S)
    assert into <= 10 * STEP_S + 1e-4


def test_a_validation_that_was_never_seen_has_not_all_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is reckoned by the second step, which may have taken thirty times as long as others."""
    time = left()
    monkeypatch.setattr(Outlook, "validation", lambda outlook: 500.0)
    assert time.validating() == pytest.approx(VARY * 500.0)
    time.outlook.pace.paused = 0
    assert time.validating() == pytest.approx(UNSEEN * 100.0)


def test_a_test_after_training_is_left_time(monkeypatch: pytest.MonkeyPatch) -> None:
    time, plain = left(), left().ending()
    for seconds, expected in ((5.0, VARY * 5.0), (500.0, UNTOUCHED * 100.0)):
        monkeypatch.setattr(Outlook, "untouched", lambda outlook, s=seconds: s)
        assert time.ending() == pytest.approx(plain + expected)


@pytest.mark.parametrize("at_ends", [True, False])
def test_epochs_that_end_without_a_validation_leave_no_time_for_one(at_ends: bool) -> None:
    record = Record(trains=True, length=100, stepped=2, steps=200)
    outlook = Outlook(fed_by(record))
    for index in range(500):
        outlook.host.steps = index + 1
        record.given, record.begun = 1 + index % 100, index - index % 100
        pauses = record.given == (1 if at_ends else 50)
        phases = dict.fromkeys(NAMES, 0)
        wall = round(1e9 * (STEP_S + VALIDATION_S * pauses))
        outlook.note(Step(index, wall, 0, phases, 1, 1, clean=not pauses))
    time = TimeLeft(Countdown(0.0, seconds=100.0, now=lambda: 0.0), outlook)
    judged = VARY * VALIDATION_S if at_ends else 0.0
    assert time.ending() == pytest.approx(
        EXIT_S + judged + MARGIN * (100 - MARGIN_AFTER_S), rel=0.01
    )


def test_a_library_that_validates_once_more_is_reckoned_with_once() -> None:
    """What is forecast of all epochs has the last validation already."""
    time = left()
    epochs = time.for_epochs()
    ending = time.ending()
    time.outlook.judged_by_library = True
    assert time.for_epochs() == epochs
    assert time.ending() == ending, "its epochs end with one"


def test_on_a_machine_that_has_slowed_down_a_validation_takes_longer() -> None:
    time = left(budget=10.0)  # so short that only the least is left free
    pace = time.outlook.pace
    for step_s in [STEP_S] * 30 + [2 * STEP_S] * 200:  # not as soon as the validation was over
        pace.note(step_s)
    assert pace.step_s == pytest.approx(2 * STEP_S, rel=0.05)
    judged = VARY * 2 * VALIDATION_S
    assert time.ending() == pytest.approx(EXIT_S + judged + LEAST_MARGIN_S, rel=0.02)
