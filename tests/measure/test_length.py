"""The length of a run, read off the loops around a step."""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler, TensorDataset

from outpace.measure.length import Loop, loops_around_step, total_steps
from outpace.measure.syntax import parse
from outpace.plan.leave import evaluates_after, ways_out

BATCHES = [(0, 1)] * 7


def loops_here(epochs: int) -> list[Loop]:
    for _ in range(1, epochs + 1):
        for _index, (_x, _y) in enumerate(BATCHES):
            return loops_around_step()
    raise AssertionError


def test_loops_over_ranges_and_lists_are_counted() -> None:
    around = loops_here(5)
    assert around[:2] == [Loop(7, False), Loop(5, True)]
    assert total_steps(around[:2], None, 1) == 35


def test_a_length_given_as_text() -> None:
    words = ["train.py", "7"]
    for _ in range(int(words[1])):
        assert loops_around_step()[0] == Loop(7, True)
        break


def forever() -> Iterator[int]:
    while True:
        yield from range(7)


def test_the_first_so_many_of_something() -> None:
    for _ in itertools.islice(forever(), 40):
        assert loops_around_step()[0] == Loop(40, False)
        break
    for _, _ in enumerate(islice(zip(forever(), forever(), strict=False), 10, 40)):
        assert loops_around_step()[0] == Loop(30, False)
        break
    for _ in islice(BATCHES, 40):
        assert loops_around_step()[0] == Loop(7, False)
        break
    for _ in islice(BATCHES, None):
        assert loops_around_step()[0] == Loop(None, False)
        break


class Reshuffled(Sampler[int]):
    """Draws its order to tell how long it is, and keeps it."""

    asked: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.order = list(range(12))

    def __iter__(self) -> Iterator[int]:
        return iter(self.order)

    def __len__(self) -> int:
        self.asked.append(1)
        random.shuffle(self.order)
        return len(self.order)


def test_a_sampler_that_draws_to_tell_its_length_has_drawn_nothing() -> None:
    sampler = Reshuffled()
    loader = DataLoader(range(12), 3, sampler=sampler)  # type: ignore[arg-type, var-annotated]
    state, order = random.getstate(), list(sampler.order)
    for _ in range(len(loader)):
        state, order = random.getstate(), list(sampler.order)
        Reshuffled.asked.clear()
        assert loops_around_step()[0] == Loop(4, True)
        break
    assert (random.getstate(), sampler.order) == (state, order)
    assert len(Reshuffled.asked) == 1
    for _ in range(len(loader.batch_sampler)):  # type: ignore[arg-type]
        assert loops_around_step()[0].turns is None
        break


class Drawn(TensorDataset):
    """A data set that draws how long it is."""

    def __len__(self) -> int:
        return random.randint(4, 8)


def test_a_data_set_that_draws_is_not_asked() -> None:
    loader = DataLoader(Drawn(torch.zeros(8)))
    for _ in range(len(loader)):
        state = random.getstate()
        assert loops_around_step()[0].turns is None
        assert random.getstate() == state
        break


class Stream(IterableDataset[int]):
    """Tells its length, of which torch then makes sure."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(12))

    def __len__(self) -> int:
        return 12


def test_a_loader_is_not_asked_itself() -> None:
    """One of a stream warns from then on where it gives more than it told."""
    loader = DataLoader(Stream(), batch_size=None)
    for _ in islice(loader, 20):
        assert loops_around_step()[0] == Loop(12, False, loader=True)
        break
    assert loader._IterableDataset_len_called is None


class Samples:
    """A data set that counts how often it is asked."""

    asked = 0

    def __getitem__(self, index: int) -> list[int]:
        self.asked += 1
        return [1, 2, 3]

    @property
    def all(self) -> list[int]:
        self.asked += 1
        return [1, 2, 3]


def test_no_code_of_the_users_is_called() -> None:
    samples = Samples()
    for _ in samples[0]:
        assert loops_around_step()[0].turns is None
        break
    for _ in samples.all:
        assert loops_around_step()[0].turns is None
        break
    assert samples.asked == 2


def test_while_turns_nobody_knows_how_often() -> None:
    while True:
        for _ in range(4):
            assert loops_around_step()[:2] == [Loop(4, True), Loop(None, False, while_=True)]
            break
        break


def test_a_loop_over_what_only_running_would_tell_is_unknown() -> None:
    for _ in iter(BATCHES):
        assert loops_around_step()[0].turns is None
        break


@pytest.mark.parametrize(
    ("loops", "epoch", "micro_steps", "total"),
    [
        ([], None, 1, None),
        ([Loop(None, False), Loop(3, True)], 10, 1, 30),
        ([Loop(None, False), Loop(3, True)], 2.5, 4, 8),
        ([Loop(None, False), Loop(3, True)], None, 1, None),
        ([Loop(None, False), Loop(None, False)], 10, 1, None),
        # A loop over a range around the step turns once a step, whatever the step gathers within.
        ([Loop(100, True)], 10, 4, 100),
        ([Loop(8, False), Loop(3, True)], None, 4, 6),
        ([Loop(100, True), Loop(2, False)], None, 4, 200),
    ],
)
def test_total(loops: list[Loop], epoch: float | None, micro_steps: int, total: int | None) -> None:
    assert total_steps(loops, epoch, micro_steps) == total


def test_a_range_beside_batches_and_a_slice_of_them_are_counted() -> None:
    batches = itertools.cycle(BATCHES)
    for _, _ in zip(range(50), batches, strict=False):
        assert loops_around_step()[0] == Loop(50, False)
        break
    for _, (_, _) in enumerate(zip(range(50), BATCHES, strict=False)):
        assert loops_around_step()[0] == Loop(7, False)
        break
    for _ in itertools.islice(itertools.cycle(BATCHES), 30):
        assert loops_around_step()[0] == Loop(30, False)
        break


def test_an_epoch_that_is_over_tells_more_of_a_loader_than_a_range_beside_it() -> None:
    loader = DataLoader(BATCHES)  # type: ignore[arg-type, var-annotated]
    for _, _ in zip(range(50), loader, strict=False):
        assert loops_around_step()[0].turns is None
        break


def test_a_loop_that_goes_on_until_something_is_so_is_no_epoch() -> None:
    """``while True: batch = next(batches)`` was taken for one epoch of the loader."""
    until = Loop(None, False, while_=True)
    assert total_steps([until], 313, 1) is None
    assert total_steps([until, Loop(3, True)], 313, 1) == 939  # until an epoch is over


TRAINING = """
import sys

def judge():
    pass

def train(step):
    for _ in range(7):
        judge()
        return step(sys._getframe())
    judge()
"""


def module_of(path: Path, turns: int, edited_at: float) -> Any:
    path.write_text(TRAINING.replace("7", str(turns)))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    os.utime(path, (edited_at, edited_at))
    return module


def test_a_script_that_was_edited_since_it_was_started_is_not_what_is_running(
    tmp_path: Path,
) -> None:
    """Its lines are others now: what is read off them would be another loop's."""
    before, since = time.time() - 86400.0, time.time() + 86400.0
    kept = module_of(tmp_path / "kept.py", 7, before)
    edited = module_of(tmp_path / "edited.py", 8, since)
    assert kept.train(lambda _: loops_around_step())[0] == Loop(7, True)
    assert Loop(8, True) not in edited.train(lambda _: loops_around_step())
    assert kept.train(evaluates_after) is True
    assert any(each.frame.f_code is kept.train.__code__ for each in kept.train(ways_out)[0])
    assert parse(str(tmp_path / "edited.py")) is None
    assert not any(each.frame.f_code is edited.train.__code__ for each in edited.train(ways_out)[0])
    assert edited.train(evaluates_after) is False


def test_loops_over_dicts_products_and_folds_are_counted() -> None:
    settings, rates = {"small": 1, "large": 2}, [0.1, 0.2, 0.3]
    for _name, _setting in settings.items():
        assert loops_around_step()[0].turns == 2
    for _rate in [0.1, *rates]:
        assert loops_around_step()[0].turns is None
    for _rate in (0.1, 0.2):
        assert loops_around_step()[0].turns == 2
    for _rate, _name in itertools.product(rates, settings):
        assert loops_around_step()[0].turns == 6
    model_selection = pytest.importorskip("sklearn.model_selection")
    for _fold, _parts in enumerate(model_selection.KFold(n_splits=3).split(torch.zeros(9, 1))):
        assert loops_around_step()[0].turns == 3
    folds = model_selection.StratifiedKFold(4)
    for _fold, (_train, _test) in enumerate(folds.split(torch.zeros(8, 1), [0, 1] * 4)):
        assert loops_around_step()[0].turns == 4
    each = model_selection.LeaveOneOut()
    for _train, _test in each.split(torch.zeros(3, 1)):
        assert loops_around_step()[0].turns is None
