"""Turns of loops that leave the step out, as where one fold of five is trained."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from outpace.measure.length import Loop, loops_around_step
from outpace.measure.turns import Turns, loops_that_count, turn_of

CONFIG = SimpleNamespace(folds=[0, 3], fold=2, last=None, epochs=4, skip=False)


def test_folds_that_are_asked_for() -> None:
    found: list[Loop] = []
    for fold in range(5):
        if fold in CONFIG.folds:
            found += loops_around_step()[:1]
    for fold in range(5):
        if fold != CONFIG.fold and CONFIG.fold != -1:
            continue
        found.append(loops_around_step()[0])
    for number, _fold in enumerate(["a", "b", "c"]):
        if number > 0:
            break
        with open("/dev/null"):
            found.append(loops_around_step()[0])
    for name in ["sgd", "adam", "adamw"]:
        if name == "sgd":
            continue
        if not CONFIG.skip:
            found.append(loops_around_step()[0])
    assert found[:2] == [Loop(2, True)] * 2
    assert found[2] == Loop(1, True)
    assert found[3] == Loop(1, False)
    assert found[4:] == [Loop(2, False)] * 2


def test_a_guard_on_what_a_dict_or_a_pair_begins_with() -> None:
    found: list[Loop] = []
    counted: list[int | None] = []
    settings = {"sgd": 0.1, "adam": 1e-3, "adamw": 1e-3}
    for name, rate in settings.items():
        if name != "sgd" and rate:
            found += loops_around_step()[:1]
            (loop,) = loops_that_count(sys._getframe())
            counted.append(turn_of([(loop, sys._getframe())]))
    for fold, _seed in [(0, 3), (1, 5), (2, 7)]:
        if fold in CONFIG.folds:
            found += loops_around_step()[:1]
    assert found == [Loop(2, False)] * 2 + [Loop(1, False)]
    assert counted == [0, 1]


def test_a_setting_that_ends_the_loop_with_its_first_turn() -> None:
    settings, found, best = SimpleNamespace(one_fold=True, all=False), list[Loop](), True
    for fold in range(5):
        found += loops_around_step()[:1]
        if fold < 9 and settings.all:
            break
        if settings.one_fold:
            break
    for _fold in range(5):
        found += loops_around_step()[:1]
        if settings.all:
            break
    for _fold in range(5):
        found += loops_around_step()[:1]
        best = not best
        if best:
            break
    assert found == [Loop(1, True)] + [Loop(5, True)] * 7


def test_what_cannot_be_looked_up_lets_all_turns_pass() -> None:
    def asks(fold: int) -> bool:
        return fold == 0

    class Odd:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("nothing of the script's is called")

        __hash__ = None  # type: ignore[assignment]

    odd, found = Odd(), list[Loop]()
    for fold in range(5):
        if asks(fold):
            found.append(loops_around_step()[0])
        if fold % 2:
            found.append(loops_around_step()[0])
        if CONFIG.last is None or fold == CONFIG.last:
            found.append(loops_around_step()[0])
    for fold in [0, 1]:
        if fold is odd or fold in (0, 1):
            found += loops_around_step()[:1]
    for fold in range(5):
        if fold == 1:
            found += loops_around_step()[:1]
        elif fold == 2:
            found += [*loops_around_step()[:1]]
    assert set(found) == {Loop(5, True), Loop(2, False)}


def test_a_loop_of_very_many_turns_is_not_gone_through() -> None:
    for number in range(10**12):
        if number > 10**9:
            continue
        assert loops_around_step()[0] == Loop(10**12, True)
        break


def test_what_changes_from_turn_to_turn_decides_nothing() -> None:
    results: list[int] = []
    found, best = list[Loop](), 0
    for fold in range(5):
        if fold < len(results) or fold in results:
            continue
        found += loops_around_step()[:1]
        results.append(fold)
    for epoch in range(5):
        if epoch > best + 2:
            break
        found += loops_around_step()[:1]
        best = epoch
    assert found == [Loop(5, True)] * 10


def test_folds_that_are_numbered_from_one_on() -> None:
    found: list[Loop] = []
    for fold, _part in enumerate("abcde", start=1):
        if fold not in [5, 6]:
            continue
        found += loops_around_step()[:1]
    for fold in range(5):
        if fold == 7 - fold:  # never, by what can be looked up
            continue
        found += loops_around_step()[:1]
    assert Loop(0, False) not in found
    assert Loop(0, True) not in found


@pytest.mark.parametrize("folds", [[0], [1, 4], [0, 1, 2, 3, 4]])
def test_how_far_a_training_is_that_leaves_folds_out(folds: list[int]) -> None:
    turns, told = Turns(), []
    for fold in range(5):
        if fold not in folds:
            continue
        for _epoch in range(3):
            for _batch in range(7):
                if len(told) == 1:
                    turns.begin()
                told.append(None)
                turns.note(len(told))
                told[-1] = turns.total()
    assert set(told[2:]) <= {len(told)}
    assert sys.gettrace() is None
