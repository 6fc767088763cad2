"""How many steps there are where loops are left by a count."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.conftest import evidence_of, with_entry
from torch.utils.data import DataLoader
from tqdm import tqdm

from outpace.measure.course import Course

BATCHES = [object() for _ in range(12)]
SETTINGS = SimpleNamespace(most=40, none=None, off=-1, ends=False)


class Training:
    """Tells how many steps there will be; ``told`` after each."""

    def __init__(self) -> None:
        self.course = Course()
        self.told: list[int | None] = []
        self.count = 0

    def step(self) -> None:
        self.course.note(len(self.told) + 1)
        self.told.append(self.course.total(None, 1))


def endless(training: Training) -> None:
    step = 0
    while True:
        training.step()
        step += 1
        if step >= 40:
            break


def endless_with_a_count_that_may_be_equal(training: Training) -> None:
    step = 0
    while True:
        if step == SETTINGS.most:
            return
        step = step + 1
        training.step()


def while_fewer(training: Training) -> None:
    step, done = 0, False
    while step < SETTINGS.most and not done:
        for _batch in iter(BATCHES):
            training.step()
            step += 1
            if step >= SETTINGS.most:
                done = True
                break


class Trainer:
    """Keeps what it counts beside what it sets anew in each turn."""

    def __init__(self) -> None:
        self.count, self.loss, self.most = 0, 0.0, 40

    def run(self, training: Training) -> None:
        self.count = 0
        while True:
            _, self.loss = 0, 1.0
            training.step()
            self.count += 1
            if self.most is not None and self.count >= self.most:
                break


def within_a_trainer_that_sets_other_attributes(training: Training) -> None:
    Trainer().run(training)


def while_some_are_left(training: Training) -> None:
    left = 40
    while left > 0:
        training.step()
        left -= 1


def far_fewer_than_the_epochs_have(training: Training) -> None:
    step = 0
    for _epoch in range(1000):
        for _batch in BATCHES:
            training.step()
            step += 1
            if SETTINGS.most is not None and step >= SETTINGS.most:
                return


def where_other_limits_are_off(training: Training) -> None:
    step = 0
    for _epoch in range(4):
        for index, _batch in enumerate(BATCHES[:10]):
            if SETTINGS.off != -1 and step > SETTINGS.off:
                return
            if SETTINGS.ends and index > 2:
                break
            training.step()
            step += 1


def gathering(training: Training) -> None:
    seen = 0
    while seen < 160:
        seen += 1
        if seen % 4 == 0:
            training.step()


def by_tokens(training: Training) -> None:
    tokens = 0
    while True:
        training.step()
        tokens += 512
        if tokens >= 40 * 512:
            break


def in_a_function_that_counts_on_itself(training: Training) -> None:
    def epoch() -> bool:
        for _batch in BATCHES:
            training.step()
            training.count += 1
            if training.count == SETTINGS.most:
                return True
        return False

    for _epoch in range(100):
        if epoch():
            break


def under_conditions_that_hold_or_come_and_go(training: Training) -> None:
    step = 0
    for _epoch in range(1000):
        for index, _batch in enumerate(BATCHES):
            if (index + 1) % 3 == 0 and index != 2:
                training.step()
                step += 1
                if not SETTINGS.ends:
                    training.count = step
                    if step >= SETTINGS.most:
                        return


def by_epochs(training: Training) -> None:
    epoch = 0
    while epoch < 4:
        for _batch in iter(BATCHES[:10]):
            training.step()
        epoch += 1


@pytest.mark.parametrize(
    ("train", "after"),
    [
        (endless, 3),
        (endless_with_a_count_that_may_be_equal, 3),
        (while_fewer, 3),
        (while_some_are_left, 3),
        (within_a_trainer_that_sets_other_attributes, 3),
        (far_fewer_than_the_epochs_have, 3),
        (where_other_limits_are_off, 3),
        (gathering, 3),
        (by_tokens, 3),
        (in_a_function_that_counts_on_itself, 3),
        (under_conditions_that_hold_or_come_and_go, 3),
        (by_epochs, 11),
    ],
)
def test_steps_until_the_loops_are_left(train: Callable[[Training], None], after: int) -> None:
    training = Training()
    train(training)
    assert len(training.told) == 40
    assert set(training.told[after - 1 :]) <= {39, 40, 41}


def a_count_of_each_epoch(training: Training) -> None:
    for _epoch in range(5):
        count = 0
        for _batch in BATCHES:
            training.step()
            count = count + 1
            if count >= 100:
                break


def a_count_of_each_call(training: Training) -> None:
    def epoch() -> None:
        count = 0
        for _batch in BATCHES:
            training.step()
            count = count + 1
            if count >= 100:
                return

    for _epoch in range(5):
        epoch()


def patience(training: Training) -> None:
    waited, best = 0, 100.0
    for _epoch in range(5):
        for _batch in BATCHES:
            training.step()
        if best > 1.0:
            best, waited = 1.0, 0
        else:
            waited += 1
        if waited >= 50:
            break


def a_loss(training: Training) -> None:
    for _epoch in range(5):
        for index, _batch in enumerate(BATCHES):
            loss = 5.0 - index / 100
            training.step()
            if loss < 1:
                return


def under_a_condition_that_does_not_hold(training: Training) -> None:
    step = 0
    for _epoch in range(5):
        for _batch in BATCHES:
            training.step()
            step += 1
            if SETTINGS.ends:
                training.count = step
                if step >= 30:
                    return


def beside_a_condition_that_holds(training: Training) -> None:
    step = 0
    for _epoch in range(5):
        for _batch in BATCHES:
            training.step()
            step += 1
            if SETTINGS.none is None:
                training.count = step
            elif step >= 30:
                return


@pytest.mark.parametrize(
    "train",
    [
        a_count_of_each_epoch,
        a_count_of_each_call,
        patience,
        a_loss,
        under_a_condition_that_does_not_hold,
        beside_a_condition_that_holds,
    ],
)
def test_what_is_no_limit_of_the_training_tells_nothing(train: Callable[[Training], None]) -> None:
    training = Training()
    train(training)
    assert len(training.told) == 60
    assert set(training.told[1:]) == {60}


def until_a_count(batches: Iterable[object]) -> list[int | None]:
    """What is told after each step, where an epoch of a loader has twelve."""
    course, told = Course(), []
    for step, _batch in enumerate(batches):
        course.note(step + 1)
        told.append(course.total(12, 1))
        if step >= 39:
            break
    return told


def test_a_count_tells_more_than_an_epoch_where_the_loop_may_go_on_after_it() -> None:
    assert until_a_count(itertools.cycle(BATCHES))[2:] == 38 * [40]


@pytest.mark.parametrize("bar", [False, True])
def test_a_loop_over_a_loader_ends_with_its_epoch(bar: bool) -> None:
    loader = DataLoader(range(12))  # type: ignore[arg-type, var-annotated]
    assert until_a_count(tqdm(loader) if bar else loader)[1:] == 11 * [12]


@pytest.mark.parametrize(
    ("ends", "epochs"),
    [pytest.param("epoch in (6,)", None, marks=pytest.mark.slow), ("epoch >= 6", 6)],
)
def test_epochs_of_a_loop_without_a_range(
    script: Callable[[str], Path], tmp_path: Path, ends: str, epochs: int | None
) -> None:
    path = script(
        f"""
        import time
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        loader = DataLoader(TensorDataset(torch.ones(80, 2)), batch_size=4)
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        epoch = 0
        while True:
            for (x,) in loader:
                model(x).sum().backward()
                optimizer.step()
                time.sleep(0.012)  # shorter steps are noted in groups
            epoch += 1
            if {ends}:
                break
        """
    )
    code, text = with_entry(path, tmp_path / "session")
    assert code == 0, text
    found = evidence_of(tmp_path / "session")
    assert found.input.epochs == epochs
    assert bool(found.run.leaves) == (epochs is None)


def test_a_loop_that_may_be_left_sooner_is_told(
    script: Callable[[str], Path], tmp_path: Path
) -> None:
    path = script(
        """
        import torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        debug, most, best, waited = False, None, 1e9, 0
        for epoch in range(10):
            for batch in range(5):
                loss = model(torch.ones(4, 2)).square().mean()
                loss.backward()
                optimizer.step()
            if debug:
                break
            if most is not None and epoch >= most:
                break
            if epoch >= 8:
                break
            waited = 0 if loss < best else waited + 1
            best = min(best, loss.item())
            if waited > 30:
                break
        """
    )
    code, text = with_entry(path, tmp_path / "session")
    assert code == 0, text
    assert evidence_of(tmp_path / "session").run.leaves == ("train.py:19",)
