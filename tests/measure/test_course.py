"""Scripts that train more than once: how many steps there are, once the last of them has begun."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import evidence_of, with_entry

from outpace.measure.course import Course
from outpace.seams.host import MOST_IN_GROUP

BATCHES = [object() for _ in range(12)]


class Training:
    """Tells how many steps there will be; ``told`` after each."""

    def __init__(self) -> None:
        self.course = Course()
        self.told: list[int | None] = []

    def step(self) -> None:
        self.course.note(len(self.told) + 1)
        self.told.append(self.course.total(None, 1))


def searching_first(training: Training) -> None:
    for index, _batch in enumerate(BATCHES * 50):
        if index == 5:
            break
        training.step()
    for _epoch in range(3):
        for _batch in BATCHES:
            training.step()


def one_step_first(training: Training) -> None:
    training.step()
    for _index in range(20):
        training.step()


def the_same_lines_twice(training: Training) -> None:
    def train(epochs: int, most: int) -> None:
        for _epoch in range(epochs):
            for batch in BATCHES[:most]:
                if batch is BATCHES[4] and epochs == 100:
                    return
                training.step()

    train(100, 12)
    train(5, 8)


@pytest.mark.parametrize(
    ("train", "first", "steps"),
    [(searching_first, 5, 41), (one_step_first, 1, 21), (the_same_lines_twice, 4, 44)],
)
def test_loops_that_come_later_count_from_their_first_steps_on(
    train: Callable[[Training], None], first: int, steps: int
) -> None:
    training = Training()
    train(training)
    assert len(training.told) == steps
    assert set(training.told[first + 1 :]) == {steps}


def test_a_search_before_the_training_does_not_stand_for_it(
    script: Callable[[str], Path], tmp_path: Path
) -> None:
    path = script(
        """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        loader = DataLoader(TensorDataset(torch.ones(400, 2)), batch_size=4)
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

        def step(x):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

        for index, (x,) in enumerate(loader):
            if index == 30:
                break
            step(x)
        for epoch in range(50):
            for (x,) in loader:
                step(x)
        """
    )
    code, text = with_entry(
        path, tmp_path / "session", "outpace.tune.experiment:begin", time_s=20.0, steps=80
    )
    assert code == 0, text
    run = evidence_of(tmp_path / "session").run
    assert run.total_steps is not None
    assert 30 <= run.total_steps - 50 * 100 < 30 + MOST_IN_GROUP  # short steps are noted in groups
    assert run.epoch_steps is None
