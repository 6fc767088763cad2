"""Steps of an epoch, whatever a step is made of and wherever an epoch ends."""

from __future__ import annotations

import weakref
from dataclasses import replace
from itertools import islice
from time import perf_counter_ns

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from outpace.seams.host import MIXED_AFTER, Host
from outpace.seams.loader import LoaderSeam
from outpace.seams.loader_record import MOST_STARTS, Record, Start, Starts
from outpace.seams.loss import LossSeam
from outpace.seams.optimizer import OptimizerSeam
from outpace.seams.setup import AS_IS, Feed


def loader(batches: int = 6) -> DataLoader[tuple[torch.Tensor, ...]]:
    return DataLoader(TensorDataset(torch.randn(2 * batches, 3)), batch_size=2)


def seam_of(host: Host) -> LoaderSeam:
    seam = host.seams["loader"]
    assert isinstance(seam, LoaderSeam)
    return seam


def test_two_models_that_learn_from_a_batch_take_it_once() -> None:
    """A GAN: three backward passes from one step of its first optimizer to the next."""
    judge, maker = nn.Linear(3, 1), nn.Linear(3, 3)
    optimizers = [torch.optim.SGD(model.parameters(), 0.01) for model in (judge, maker)]
    with hosted() as host:
        seen = []
        for (x,) in loader():
            judge(x).mean().backward()
            judge(maker(x).detach()).mean().backward()
            optimizers[0].step()
            judge(maker(x)).mean().backward()
            optimizers[1].step()
            seen.append(host.micro_steps)
        assert seen == [1] * 6
        assert host.samples == 12


@pytest.mark.parametrize("accumulated", [1, 3])
def test_accumulated_batches_are_counted(accumulated: int) -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with hosted() as host:
        for index, (x,) in enumerate(loader()):
            model(x).mean().backward()
            if index % accumulated == accumulated - 1:
                optimizer.step()
                assert host.micro_steps == accumulated
        assert host.steps == 6 // accumulated


@pytest.mark.parametrize("peeks", [False, True])
def test_a_pass_over_the_data_before_training_is_of_the_start(peeks: bool) -> None:
    """For the data's mean, say, or a look at a batch: it was in no row of the ledger."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches = loader()
    with hosted() as host:
        _ = next(iter(batches)) if peeks else list(batches)
        passed = perf_counter_ns()
        for (x,) in batches:
            model(x).mean().backward()
            optimizer.step()
        assert host.first_step_start is not None
        assert host.first_step_start >= passed
        assert host.steps == 6


@pytest.mark.parametrize(("validates_at", "inside"), [(3, True), (5, False), (None, False)])
def test_a_validation_between_two_batches_is_seen(validates_at: int | None, inside: bool) -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches = loader()
    with hosted() as host:
        seam = seam_of(host)
        for _ in range(2):
            for index, (x,) in enumerate(batches):
                model(x).mean().backward()
                optimizer.step()
                if index == validates_at:
                    model.eval()
                    with torch.no_grad():
                        model(x)
                    model.train()
            model.eval()
            with torch.no_grad():
                model(x)
            model.train()
        assert seam.record_of(batches).interrupted == inside


@pytest.mark.parametrize("batches_judged", [3, 6])
def test_a_validation_on_the_trainings_own_batches_is_between_epochs(batches_judged: int) -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches = loader()
    with hosted() as host:
        for _ in range(3):
            for (x,) in batches:
                model(x).mean().backward()
                optimizer.step()
            with torch.no_grad():
                for (x,) in islice(batches, batches_judged):
                    model(x)
        assert not seam_of(host).record_of(batches).interrupted


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("before", [False, True], ids=["from the first step", "before training"])
def test_a_validation_between_a_batch_and_its_step_does_not_train(every: int, before: bool) -> None:
    """It is the batch drawn last, but not the one that is learnt from."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches, others = loader(12), loader(4)

    def judge(by: DataLoader[tuple[torch.Tensor, ...]]) -> None:
        model.eval()
        with torch.no_grad():
            for (x,) in by:
                model(x)
        model.train()

    with hosted() as host:
        seam = seam_of(host)
        if before:  # by what is trained on as well
            judge(others)
            judge(batches)
        for _ in range(2):
            for index, (x,) in enumerate(batches):
                if index % every == 0:
                    judge(others)
                model(x).mean().backward()
                optimizer.step()
        assert seam.record_of(batches).trains
        assert not seam.record_of(others).trains
        assert seam.record_of(batches).steps_of_epoch(1.0) == 12
        assert seam.record_of(batches).interrupted


@pytest.mark.parametrize("first", [0, 3])
def test_nor_where_nothing_tells_that_the_model_is_judged(first: int) -> None:
    """As under a deadline, where its calls are not looked at."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches, others = loader(12), loader(4)
    host = Host(boundary="optimizer")
    for seam in (LoaderSeam(host), LossSeam(host), OptimizerSeam(host)):
        host.add(seam)
    host.install()
    try:
        for _ in range(2):
            for index, (x,) in enumerate(batches):
                if index % 4 == first:
                    with torch.no_grad():
                        for (judged,) in others:
                            model(judged)
                model(x).mean().backward()
                optimizer.step()
    finally:
        host.remove()
    assert seam_of(host).record_of(batches).trains
    assert not seam_of(host).record_of(others).trains
    assert seam_of(host).record_of(batches).given == 12


def test_batches_that_are_looked_at_within_an_epoch_are_none_of_it() -> None:
    """A whole pass over what is trained on, and a part of one, in the midst of an epoch."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches, given, seen = loader(12), [], []
    with hosted() as host:
        record = seam_of(host).record_of(batches)
        for index, (x,) in enumerate(batches):
            model(x).mean().backward()
            optimizer.step()
            if index in (3, 7):
                model.eval()
                with torch.no_grad():
                    seen.append(sum(1 for _ in islice(batches, 12 if index == 3 else 2)))
                model.train()
            given.append(record.given)
    assert seen == [12, 2]
    assert [given[index] for index in (2, 4, 6, 8, 11)] == [3, 5, 7, 9, 12]


def test_what_was_judged_by_may_be_trained_on_later() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    first, then = loader(), loader()
    with hosted() as host:
        seam = seam_of(host)
        for batches in (first, then):
            for (x,) in batches:
                model(x).mean().backward()
                optimizer.step()
            with torch.no_grad():
                for (x,) in then:
                    model(x)
        assert seam.record_of(then).trains


@pytest.mark.parametrize("leaves_at", [4, 100])
def test_epochs_that_are_left_early_are_as_long_as_they_were(leaves_at: int) -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches = loader()
    with hosted() as host:
        seam = seam_of(host)
        for _ in range(3):
            for index, (x,) in enumerate(batches):
                if index == leaves_at:
                    break
                model(x).mean().backward()
                optimizer.step()
                next(iter(batches))  # a look at a batch is no epoch
            assert sum(1 for _ in batches) == 6  # nor is a validation on the same data
        assert seam.record_of(batches).steps_of_epoch(1) == min(6, leaves_at)


def test_epochs_of_persistent_workers_that_are_left_early() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = TensorDataset(torch.randn(12, 3))
    batches = DataLoader(data, batch_size=2, num_workers=1, persistent_workers=True)
    with hosted() as host:
        seam = seam_of(host)
        for _ in range(3):
            for index, (x,) in enumerate(batches):
                if index == 4:
                    break
                model(x).mean().backward()
                optimizer.step()
        assert seam.record_of(batches).steps_of_epoch(1) == 4


def test_epochs_whose_end_went_by_unseen_do_not_count() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches = loader()
    with hosted() as host:
        seam = seam_of(host)
        for epoch in range(7):
            if epoch in (2, 5):
                seam.remove()
            elif epoch in (3, 6):
                seam.install()
            for (x,) in batches:
                model(x).mean().backward()
                optimizer.step()
        assert seam.record_of(batches).stepped == 2
        assert seam.record_of(batches).steps_of_epoch(1) == 6


def test_an_epoch_that_begins_unwatched_is_served_once_steps_are_watched() -> None:
    """Of steps that are slow an epoch has many blocks of arms, of which the first may be unwatched."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches = loader(8)

    def learn(x: torch.Tensor) -> None:
        model(x).mean().backward()
        optimizer.step()

    with hosted(switching=True) as host:
        seam = seam_of(host)
        for (x,) in batches:
            learn(x)
        kept = [x for (x,) in seam.record_of(batches).recent.batches]
        host.switch(replace(AS_IS, watched=False))
        epoch = iter(batches)
        for _ in range(3):
            learn(next(epoch)[0])
        host.switch(replace(AS_IS, free_input=True))
        for _ in range(2):
            (x,) = next(epoch)
            same = [old for old in kept if x.data_ptr() == old.data_ptr()]
            assert same, "a batch was made that was to be free"
            learn(x)
        host.switch(replace(AS_IS, watched=False))
        learn(next(epoch)[0])
        host.switch(AS_IS)
        assert sum(1 for _ in epoch) == 2, "an epoch is as long as ever"


def test_a_loader_made_anew_for_each_epoch_is_known_again() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    trained, other = loader(1).dataset, loader(1).dataset

    def made(dataset: Dataset[tuple[torch.Tensor, ...]]) -> DataLoader[tuple[torch.Tensor, ...]]:
        return DataLoader(dataset, batch_size=2)

    with hosted() as host:
        seam = seam_of(host)
        for _ in range(2):
            for (x,) in made(trained):
                model(x).mean().backward()
                optimizer.step()
        again, validation = made(trained), made(other)
        iter(again), iter(validation)
        assert seam.record_of(again).trains
        for _ in again:
            assert seam.record_of(again).anew
        assert not seam.record_of(validation).trains, "of another data set, at the same line"


@pytest.mark.parametrize(("samples", "again"), [(8, True), (6, False)])
def test_a_data_set_made_anew_for_each_epoch_is_known_again(samples: int, again: bool) -> None:
    """One as long as that before, which is gone; its batches are free, too, where input is to be."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def made(samples: int) -> DataLoader[tuple[torch.Tensor, ...]]:
        return DataLoader(TensorDataset(torch.randn(samples, 3)), batch_size=2)

    def learn(x: torch.Tensor) -> None:
        model(x).mean().backward()
        optimizer.step()

    with hosted(switching=True) as host:
        seam = seam_of(host)
        for _ in range(2):
            for (x,) in made(8):
                learn(x)
        host.switch(replace(AS_IS, free_input=True))
        batches = made(samples)
        epoch = iter(batches)
        assert seam.record_of(batches).trains is again
        seen = []
        for (x,) in epoch:
            seen.append(x.data_ptr())
            learn(x)
        assert len(seen) == samples // 2, "an epoch is as long as ever"
        recent = {x.data_ptr() for (x,) in seam.record_of(batches).recent.batches}
        assert recent.issuperset(seen[1:]), "no more than one was made"


def test_a_line_that_makes_loaders_to_judge_by_too() -> None:
    """One as long as those for training is taken for one until the model only judges by it."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def made() -> DataLoader[tuple[torch.Tensor, ...]]:
        return DataLoader(TensorDataset(torch.randn(8, 3)), batch_size=2)

    with hosted(switching=True) as host:
        seam = seam_of(host)
        for epoch in range(3):
            batches = made()
            for (x,) in batches:
                model(x).mean().backward()
                optimizer.step()
            assert seam.record_of(batches).trains
            del batches
            judging = made()
            with torch.no_grad():
                for (x,) in judging:
                    model(x)
                    assert not seam.record_of(judging).trains
            assert seam.record_of(judging).judges, epoch
            assert len(seam.fed_by[seam.record_of(judging).where or ""].starts) == epoch + 1
            assert host.steps == 4 * (epoch + 1)


def test_starts_are_those_of_all_loaders_that_a_line_makes() -> None:
    """As of episodes, each of which has a data set of its own."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with hosted() as host:
        seam, episodes = seam_of(host), []
        for _ in range(3):
            episode = DataLoader(TensorDataset(torch.randn(8, 3)), batch_size=2)
            for (x,) in episode:
                model(x).mean().backward()
                optimizer.step()
            episodes.append(episode)
        records = [seam.record_of(episode) for episode in episodes]
        assert [len(record.starts) for record in records] == [3, 3, 3]
        assert [record.anew for record in records] == [True, True, True]


def test_an_iterator_that_each_step_makes_is_made_once_a_batch_is_asked_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An arm with free input does without it, and without the workers that it would start."""
    made = []
    original = DataLoader._get_iterator
    monkeypatch.setattr(DataLoader, "_get_iterator", lambda own: made.append(own) or original(own))
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches = loader()

    def learn(steps: int) -> int:
        before = len(made)
        for _ in range(steps):
            (x,) = next(iter(batches))
            model(x).mean().backward()
            optimizer.step()
        return len(made) - before

    with hosted(switching=True) as host:
        host.most_in_group = 1
        assert learn(2 * MIXED_AFTER) == 2 * MIXED_AFTER
        assert host.mingled
        assert seam_of(host).record_of(batches).restarts
        host.switch(replace(AS_IS, free_input=True))
        assert learn(3) == 0
        host.switch(replace(AS_IS, feed=Feed(executor="inline")))
        assert learn(3) == 0
        host.switch(AS_IS)
        assert learn(3) == 3
        assert sum(1 for _ in batches) == 6, "an epoch is as long as ever"
        assert not host.broken


def test_a_look_at_a_batch_in_each_step_is_no_restart() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches = loader()
    with hosted() as host:
        for _ in range(3):
            for (x,) in batches:
                model(x).mean().backward()
                optimizer.step()
                next(iter(batches))
        assert not seam_of(host).record_of(batches).restarts


def test_epochs_of_unequal_length() -> None:
    record = Record(length=103)
    assert record.steps_of_epoch(8) == 13
    for steps in (0, 12, 25, 38):
        record.begin_epoch(steps)
    assert record.steps_of_epoch(8) == pytest.approx(38 / 3)
    assert Record().steps_of_epoch(1) is None


def test_an_iterator_that_is_kept_after_its_last_batch_is_of_no_epoch_any_more() -> None:
    """Lightning keeps it until it has made the next: two epochs were told as one."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches, kept = loader(), None
    with hosted() as host:
        for _ in range(4):
            epoch = iter(batches)
            kept = epoch
            for (x,) in kept:
                model(x).mean().backward()
                optimizer.step()
        record = seam_of(host).record_of(batches)
        assert (record.stepped, record.steps_of_epoch(1)) == (3, 6)


def test_an_epoch_within_another_is_none() -> None:
    class Batches:
        """An iterator that the script holds."""

    held, record = Batches(), Record(length=10)
    record.begin_epoch(0)
    record.running = weakref.ref(held)
    record.begin_epoch(4)
    assert record.runs
    assert record.stepped == 0
    del held
    assert not record.runs
    record.begin_epoch(10)
    assert record.steps_of_epoch(1) == 10


def test_starts_of_epochs_in_arms_are_not_the_scripts_own() -> None:
    """With free input an epoch begins at once."""
    own, arms = [Start(150, True)], [Start(20, False)]
    assert Record(starts=Starts(*own, *arms)).own_starts == own
    assert Record(starts=Starts(*arms)).own_starts == arms


def test_of_iterators_without_end_the_newest_are_kept_and_all_are_counted() -> None:
    """A script may make one for each step."""
    record, others = Record(epochs=2), Starts(Start(1, True), Start(2, True))
    for _ in range(MOST_STARTS):
        record.starts.append(Start(3, True))
    record.starts.take(others)
    assert len(record.starts) == MOST_STARTS + 2
    assert len(record.own_starts) == MOST_STARTS
    assert [start.ns for start in record.own_starts[-3:]] == [3, 1, 2]
    assert record.starts.pop().ns == 2
    assert len(record.starts) == MOST_STARTS + 1
