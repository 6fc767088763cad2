"""Turns of loops that leave the step out, as where one fold of five is trained."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from outpace.measure.length import Loop, loops_around_step
from outpace.measure.turns import Turns

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
