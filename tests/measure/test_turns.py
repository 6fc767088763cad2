"""How many steps a training has, by the loops around it that tell where they are."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tests.conftest import evidence_of, with_entry
from tqdm import tqdm

from outpace.measure.expressions import Unknown, variable
from outpace.measure.turns import Turns

BATCHES = [(torch.zeros(1), torch.zeros(1)) for _ in range(12)]


class Training:
    """Tells how many steps there will be; ``told`` after each."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.told: list[int | None] = []

    def step(self) -> None:
        steps = len(self.told) + 1
        if steps == 2:
            self.turns.begin()
        self.turns.note(steps)
        self.told.append(self.turns.total())


def gathering_over_a_range(training: Training) -> None:
    for index in range(100):
        if (index + 1) % 4 == 0:
            training.step()


def gathering_over_a_list(training: Training) -> None:
    count = 0
    for _epoch in range(5):
        for batch in BATCHES:
            count += len(batch) > 0
            if count % 3:
                continue
            training.step()


def gathering_within(training: Training) -> None:
    for _epoch in range(5):
        for x, _y in BATCHES[:10]:
            for _part in x:
                pass
            training.step()


def in_slices(training: Training) -> None:
    for _epoch in range(3):
        for _at in range(0, 64, 8):
            training.step()


def over_anything(training: Training) -> None:
    for _epoch in range(4):
        for _rows in torch.arange(60).split(3):
            training.step()


def several_a_batch(training: Training) -> None:
    def batches() -> Iterator[int]:
        yield from range(6)

    for _epoch in range(4):
        for _batch in batches():
            for _again in range(3):
                training.step()


def cut_short(training: Training) -> None:
    for _epoch in range(6):
        for index, (_x, _y) in enumerate(BATCHES):
            if index == 5:
                break
            training.step()


def over_a_bar_with_a_name(training: Training) -> None:
    bar = tqdm(range(30))
    for _index in bar:
        training.step()


def with_numbers(training: Training) -> None:
    for index, (_x, _y) in enumerate(BATCHES):
        if index % 2:
            training.step()


def over_settings(training: Training) -> None:
    for _name in ["small", "large"]:
        for _rate, _decay in [(0.1, {}), (-0.2, {}), (0.3, {})]:
            for _again in iter(range(4)):
                training.step()


def over_a_dict(training: Training) -> None:
    settings = {"small": {"rate": 0.1}, "large": {"rate": 0.1}, "largest": {}}
    for _name in settings:
        for _other, _ in settings.items():
            for _again in settings.values():
                training.step()


def over_phases(training: Training) -> None:
    for _epoch in range(5):
        for phase in ["train", "val"]:
            for _batch in iter(range(6)):
                if phase == "train":
                    training.step()


def over_phases_by_number(training: Training) -> None:
    for _epoch in range(5):
        for phase in ["train", "val"]:
            for _index, _batch in enumerate(BATCHES):
                if phase == "train":
                    training.step()


def over_pairs(training: Training) -> None:
    settings = {f"setting {number}": number for number in range(50)}
    for _pair in settings.items():
        for _sizes in [[64], [128, 64]]:
            for _step in range(3):
                training.step()


@pytest.mark.parametrize("train", [over_phases_by_number, over_pairs])
def test_what_does_not_tell_where_it_is_tells_nothing_wrong(
    train: Callable[[Training], None],
) -> None:
    training = Training()
    train(training)
    assert set(training.told) <= {None, len(training.told)}


@pytest.mark.parametrize(
    ("train", "after"),
    [
        (over_settings, 5),
        (over_a_dict, 3),
        (over_phases, 7),
        (gathering_over_a_range, 3),
        (gathering_over_a_list, 3),
        (gathering_within, 3),
        (in_slices, 3),
        (over_anything, 21),
        (several_a_batch, 19),
        (with_numbers, 3),
        (over_a_bar_with_a_name, 3),
        (cut_short, 6),
    ],
)
def test_steps_to_the_end_of_the_loops(train: Callable[[Training], None], after: int) -> None:
    """Known after two steps, or after the first turn of the loops that tell where they are."""
    training = Training()
    train(training)
    steps = len(training.told)
    if train is not cut_short:
        assert training.told[: after - 1] == [None] * (after - 1)
    assert set(training.told[after - 1 :]) <= {steps - 1, steps, steps + 1}
    assert training.told[-1] == steps


def test_a_variable_that_something_else_counts_with_tells_nothing() -> None:
    training = Training()
    for index in range(1000):
        index = 90 - 7 * len(training.told)  # noqa: F841, PLW2901
        training.step()
        if len(training.told) == 10:
            break
    assert training.told[-1] is None


def test_loops_that_come_later_are_not_taken_for_the_first() -> None:
    training = Training()
    for _index in range(8):
        training.step()
    for _index in range(100):
        training.step()
        if len(training.told) == 50:
            break
    assert set(training.told[2:]) == {8}


def test_to_look_at_a_variable_keeps_no_other() -> None:
    step, activations = 3, torch.zeros(10)
    kept = weakref.ref(activations)
    assert variable(sys._getframe(), "step") == step
    del activations
    assert kept() is None


def test_what_a_script_was_told_of_its_variables_stays_as_it_was() -> None:
    settings = locals()
    later = 1
    with pytest.raises(Unknown):
        variable(sys._getframe(), "later")
    assert later == 1
    assert not settings


def test_a_run_that_gathers_gradients_without_a_loader(
    script: Callable[[str], Path], tmp_path: Path
) -> None:
    path = script(
        """
        import torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for index in range(80):
            model(torch.ones(4, 2)).sum().backward()
            if (index + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
        """
    )
    code, text = with_entry(path, tmp_path / "session")
    assert code == 0, text
    run, steps = evidence_of(tmp_path / "session").run, evidence_of(tmp_path / "session").steps
    assert (run.total_steps, steps.count) == (20, 20)


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param("for epoch in range(6)", marks=pytest.mark.slow),
        "while (epoch := epoch + 1) <= 6",
    ],
)
def test_epochs_that_a_script_leaves_before_its_loaders_end(
    script: Callable[[str], Path], tmp_path: Path, loop: str
) -> None:
    path = script(
        f"""
        import itertools
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        loader = DataLoader(TensorDataset(torch.ones(80, 2)), batch_size=4)
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        epoch = 0
        {loop}:
            for (x,) in itertools.islice(loader, 5):
                model(x).sum().backward()
                optimizer.step()
        """
    )
    code, text = with_entry(path, tmp_path / "session")
    assert code == 0, text
    found = evidence_of(tmp_path / "session")
    assert (found.run.epoch_steps, found.input.batches) == (5, 20)


def test_turns_that_began_between_two_looks_mislead_no_one() -> None:
    turns, steps = Turns(), 0
    for _epoch in range(6):
        for _step in itertools.repeat(None, 5):
            steps += 1
            if steps == 2:
                turns.begin()
            if steps <= 20 or steps % 3 == 1:  # very short steps are looked at in groups
                turns.note(steps)
    assert turns.per_turn() == 5


def test_a_turn_that_is_skipped_before_an_early_end_leaves_the_steps_to_be_told() -> None:
    """By the skipped turn two steps of one epoch seem to tell of two begins of it."""
    turns, steps, told = Turns(), 0, None
    for _epoch in range(50):
        for index in range(200):
            if index == 5:
                continue
            steps += 1
            if steps == 2:
                turns.begin()
            if 2 <= steps <= 22 or steps % 28 == 22:
                turns.note(steps)
            told = turns.total()
            if index == 30:
                break
    assert steps == 1500
    assert told == pytest.approx(1500, rel=0.05)


@pytest.mark.parametrize(
    ("of", "left_at", "whole"), [(20, None, 1000), (20, 7, 350), (200, 30, 1500)]
)
def test_looks_that_become_rare_are_no_early_ends(of: int, left_at: int | None, whole: int) -> None:
    """Very short steps are looked at one by one first, then in groups of 28."""
    turns, steps, told = Turns(), 0, None
    for _epoch in range(50):
        for index in range(of):
            if index == left_at:
                break
            steps += 1
            if steps == 2:
                turns.begin()
            if 2 <= steps <= 22 or steps % 28 == 22:
                turns.note(steps)
            told = told if steps > 90 else turns.total()
    assert steps == whole
    assert told == pytest.approx(whole, rel=0.02 if left_at is None else 0.2)
