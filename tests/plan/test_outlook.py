"""How long a training will be, and its validations, from what was met of it so far."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

from outpace.measure.length import Loop
from outpace.measure.subjects import FORWARD
from outpace.plan.outlook import Outlook
from outpace.seams.host import Host, Step
from outpace.seams.loader import LoaderSeam
from outpace.seams.loader_record import Record
from outpace.seams.phases import NAMES
from tests.plan.hosts import fed_by
from tests.remedies.trainings import hosted


def step(host: Host, *, clean: bool = True) -> Step:
    """The next one, of 100 ms."""
    host.steps += 1
    phases = dict.fromkeys(NAMES, 0)
    return Step(host.steps - 1, 10**8, 0, phases, host.micro_steps, 8, clean)


def fed(length: int) -> Host:
    """A host that has met the loader of a training."""
    return fed_by(Record(trains=True, length=length))


def test_a_validation_that_was_not_met_yet_is_reckoned_with() -> None:
    host = Host()
    seam = LoaderSeam(host)
    host.seams["loader"] = seam
    seam.install()
    try:
        train = DataLoader(TensorDataset(torch.zeros(64, 2)), batch_size=8)
        valid = DataLoader(TensorDataset(torch.zeros(32, 2)), batch_size=16)
        list(train)
        record = seam.record_of(train)
        record.trains, host.batch_size = True, 8
        outlook = Outlook(host)
        outlook.pace.note(0.1)
        assert len(valid) == 2
        assert outlook.epoch() == 8
        assert outlook.validation() == pytest.approx(FORWARD * 0.1 * 32 / 8)
        batches = BatchSampler(SequentialSampler(range(32)), 8, drop_last=False)
        by_sampler = DataLoader(TensorDataset(torch.zeros(32, 2)), batch_sampler=batches)
        assert len(by_sampler) == 4
        assert outlook.validation() == pytest.approx(FORWARD * 0.1 * (32 + 32) / 8)
    finally:
        seam.remove()


def test_two_loaders_side_by_side_are_no_validation() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def loader() -> DataLoader[tuple[torch.Tensor, ...]]:
        return DataLoader(TensorDataset(torch.zeros(64, 2)), batch_size=8)

    labeled, unlabeled, held_out = loader(), loader(), loader()
    with hosted() as host:
        outlook = Outlook(host)
        outlook.pace.note(0.1)
        next(iter(held_out))  # a look at some samples
        for index, ((x,), (u,)) in enumerate(zip(labeled, unlabeled, strict=True)):
            (model(x) + model(u)).sum().backward()
            optimizer.step()
            if index == 2:
                break
        assert outlook.epoch() == 8
        assert outlook.validation() == pytest.approx(FORWARD * 0.1 * 8)


def test_a_loop_over_a_generator_without_end_is_known_to_be_one_after_an_epoch() -> None:
    host = fed(10)
    outlook, told = Outlook(host), []
    for _ in iter(range(30)):
        outlook.note(step(host))
        told.append(outlook.total())
    assert told[1:10] == [10] * 9
    assert told[12:] == [None] * 18


def test_epochs_of_one_step_are_forecast() -> None:
    host = fed(1)
    outlook = Outlook(host)
    outlook.course.loops = [Loop(None, False), Loop(100, True)]
    for _ in range(20):
        outlook.note(step(host, clean=False))
    found = outlook.finish()
    assert found is not None
    assert found.estimate == pytest.approx(8.0)


def test_epochs_of_one_step_are_forecast_once_the_host_takes_them_for_steps() -> None:
    host = fed(1)
    outlook = Outlook(host)
    outlook.course.loops = [Loop(None, False), Loop(100, True)]
    outlook._on_others = lambda untouched: 6.0  # type: ignore[method-assign]
    for index in range(60):
        host.mingled = index >= 16
        outlook.note(step(host, clean=host.mingled))
    found = outlook.finish()
    assert found is not None
    assert found.estimate == pytest.approx(4.0)


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_pause_where_an_epoch_begins_is_one_though_a_batch_is_drawn_ahead(ahead: int) -> None:
    """As accelerate draws it, to know which is the last."""
    outlook = Outlook(fed(10))
    record = outlook._record()
    assert record is not None
    for index in range(45):
        first = index % 10 == 0
        record.begun = outlook.host.steps if first else record.begun
        record.given = min(10, index % 10 + 1 + ahead)
        pause = replace(
            step(outlook.host, clean=not first), wall=round((1.1 if first else 0.1) * 1e9)
        )
        outlook.note(pause)
    assert not outlook.only_within
    assert outlook.pace.paused


def test_a_first_validation_is_told_without_what_it_waited_for_files() -> None:
    outlook = Outlook(fed(10))
    for index in range(1, 10):
        outlook.note(step(outlook.host), 0.0, 0.05)  # steps: they tell themselves
        if index == 8:
            assert outlook.pace.step_s == pytest.approx(0.1)
    seconds = replace(step(outlook.host, clean=False), wall=round(1.6e9))
    outlook.note(seconds, 0.0, 0.5)
    assert outlook.validation() == pytest.approx(1.0)


@pytest.mark.parametrize(("untouched", "told"), [(0.0, 0.4), (1.0, 1.2)])
def test_a_validation_that_takes_no_longer_than_two_steps(untouched: float, told: float) -> None:
    """200 ms, and then the machine slows down: as it was seen, unless other data were not used yet."""
    outlook = Outlook(fed(100))
    record = outlook._record()
    assert record is not None
    outlook._on_others = lambda untouched: tell[untouched]  # type: ignore[method-assign]
    tell = {True: untouched, False: 1.2}
    for index in range(200):
        record.given = index % 100 + 1
        lasting = replace(step(outlook.host), wall=round((0.2 if index > 110 else 0.1) * 1e9))
        if index == 100:
            lasting = replace(lasting, wall=round(0.3e9), clean=False)
        elif index == 50:
            lasting = replace(lasting, wall=round(0.35e9), clean=False)  # no validation
        outlook.note(lasting)
    assert outlook.pace.pause_s is None
    assert outlook.validation() == pytest.approx(told, rel=0.1)


@pytest.mark.parametrize(("batches", "told"), [(20, 2.0), (400, 3.0), (1000, 4.0)])
def test_the_machine_slowed_down_about_a_validation(batches: int, told: float) -> None:
    """As long as it took, or twice: what lies between is told by the batches that it has."""
    outlook = Outlook(fed(10))
    outlook._on_others = lambda untouched: batches * 0.0075  # type: ignore[method-assign]
    for index in range(400):
        slowed = index > 200
        lasting = replace(step(outlook.host), wall=round((0.2 if slowed else 0.1) * 1e9))
        if index == 200:
            lasting = replace(lasting, wall=round(2.1e9), clean=False)
        outlook.note(lasting)
    assert outlook.validation() == pytest.approx(told, rel=0.05)


def test_a_script_that_trains_in_phases() -> None:
    host = fed(10)
    outlook = Outlook(host)
    for _ in range(10):
        outlook.note(step(host))
    assert outlook.total() == 10
    for _ in range(20):
        outlook.note(step(host))
    assert outlook.total() == 30


def test_the_length_of_an_epoch_is_that_of_the_loader_that_feeds_it_now() -> None:
    host = fed(10)
    outlook = Outlook(host)
    outlook.note(step(host))
    assert outlook.epoch() == 10
    fed_by(Record(trains=True, length=40, given=30), host)
    assert outlook.epoch() == 40
    assert outlook.to_epochs_end() == 10


def test_an_epoch_ends_where_those_before_were_left() -> None:
    host = fed_by(Record(trains=True, length=40, given=5, steps=20, stepped=2, begun=20))
    host.steps = 24
    assert Outlook(host).to_epochs_end() == 6
    host.steps = 35
    assert Outlook(host).to_epochs_end() == 35


def test_an_epoch_of_a_loader_without_a_length_ends_where_those_before_did() -> None:
    host = fed_by(Record(trains=True, length=None, given=9, steps=20, stepped=2, begun=20))
    host.steps = 29
    assert Outlook(host).to_epochs_end() == 1
    host.steps = 35
    assert Outlook(host).to_epochs_end() is None
    first = fed_by(Record(trains=True, length=None, given=9, begun=0))
    assert Outlook(first).to_epochs_end() is None


def test_batches_that_an_epoch_leaves_over_for_the_next_change_no_forecast() -> None:
    host = fed(100)
    outlook = Outlook(host)
    outlook.course.loops = [Loop(None, False), Loop(3, True)]
    host.micro_steps = 8
    told = []
    for index in range(13):
        host.micro_steps = 8 if index < 12 else 12  # four of the last epoch, and eight of this one
        outlook.note(step(host, clean=index < 12))
        told.append(outlook.total())
    assert told[1:] == [39] * 12
    assert outlook.to_epochs_end() == 100 / 8
