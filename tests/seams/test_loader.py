"""A watched DataLoader gives what it would, whatever its class, its sampler and its data set do."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    TensorDataset,
)

from outpace.measure.subjects import training_loader
from outpace.seams.generators import generators_in
from outpace.seams.host import Host
from outpace.seams.loader import LoaderSeam
from outpace.seams.setup import AS_IS, Feed, Setup

INLINE = replace(AS_IS, feed=Feed(executor="inline"))


def learner() -> Callable[[torch.Tensor], None]:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def learn(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()

    return learn


def length_of(host: Host, batches: DataLoader[Any]) -> int | None:
    seam = host.seams["loader"]
    assert isinstance(seam, LoaderSeam)
    return seam.record_of(batches).length


@pytest.mark.parametrize(
    "how",
    [
        {"batch_size": None, "sampler": BatchSampler(RandomSampler(range(8)), 2, False)},
        {"batch_size": 2, "sampler": [3, 1, 2, 0, 7, 6, 5, 4]},
        {"batch_sampler": [[0, 1], [2, 3], [4, 5], [6, 7]]},
    ],
    ids=["no batch sampler", "a list of indices", "a list of batches"],
)
def test_loaders_of_every_kind_have_a_length(how: dict[str, Any]) -> None:
    learn, data = learner(), torch.randn(8, 3)
    with hosted(switching=True) as host:
        batches: DataLoader[Any] = DataLoader(data, **how)  # type: ignore[arg-type]
        assert length_of(host, batches) == 4
        for epoch in range(4):
            host.switch(replace(AS_IS, free_input=True) if epoch % 2 else AS_IS)
            count = 0
            for x in batches:
                learn(x)
                count += 1
            assert count == 4
        assert not host.broken


def test_a_loader_trains_where_gradients_are_had_without_a_backward_pass() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with hosted(switching=True) as host:
        batches: DataLoader[Any] = DataLoader(torch.randn(16, 3), 2)  # type: ignore[arg-type]
        for x in batches:
            wanted = list(model.parameters())
            for weight, slope in zip(
                wanted, torch.autograd.grad(model(x).mean(), wanted), strict=True
            ):
                weight.grad = slope
            optimizer.step()
        found = training_loader(host)
        assert found is not None
        assert found[0] is batches


def test_one_batch_that_all_steps_learn_from_feeds_none() -> None:
    learn = learner()
    with hosted(switching=True) as host:
        batches: DataLoader[Any] = DataLoader(torch.randn(16, 3), 2)  # type: ignore[arg-type]
        x = next(iter(batches))
        for index in range(30):
            learn(x)
            assert (training_loader(host) is not None) == (index < 20)


class Pool(Dataset[torch.Tensor]):
    """Rows that may become more."""

    def __init__(self, count: int) -> None:
        self.rows = [torch.randn(3) for _ in range(count)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index]


def test_a_data_set_that_grows_between_epochs() -> None:
    learn, pool = learner(), Pool(8)
    batches: DataLoader[torch.Tensor] = DataLoader(pool, batch_size=2)
    with hosted(switching=True) as host:
        for epoch in range(4):
            host.switch(INLINE if epoch == 3 else AS_IS)
            steps = 0
            for x in batches:
                learn(x)
                steps += 1
            assert steps == len(batches) == length_of(host, batches) == 4 * (epoch + 1)
            pool.rows += [torch.randn(3) for _ in range(8)]
        assert not host.broken


class Stream(IterableDataset[torch.Tensor]):
    """Twice as many rows as it tells."""

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(8):
            yield torch.randn(3)


@pytest.mark.filterwarnings("ignore:Length of IterableDataset")
def test_a_stream_of_more_than_it_tells() -> None:
    learn = learner()
    batches: DataLoader[torch.Tensor] = DataLoader(Stream(), batch_size=2)
    with hosted(switching=True):
        for _ in range(3):
            steps = 0
            for x in batches:
                learn(x)
                steps += 1
            assert steps == 4


@pytest.mark.parametrize("others", [False, True], ids=["watched", "with another feed in between"])
def test_two_iterators_of_one_loader(others: bool) -> None:
    """Each has an epoch of its own, also where an arm gives some of the batches."""
    learn = learner()
    batches: DataLoader[torch.Tensor] = DataLoader(Pool(12), batch_size=2)
    with hosted(switching=True) as host:
        for _ in range(3):
            steps = 0
            for one, other in zip(batches, batches, strict=True):
                learn(one + other)
                steps += 1
                host.switch(INLINE if others and steps in (2, 3) else AS_IS)
            assert steps == 6
        assert not host.broken


NESTED = ("another's", "a list", "an array", "buckets")


class Buckets(Sampler[list[int]]):
    """Knows how many batches there are once it has made them, by chance."""

    def __init__(self, kind: str) -> None:
        self.rng: Any = {
            "torch": lambda: torch.Generator().manual_seed(0),
            "python": lambda: random.Random(0),
            "numpy": lambda: np.random.default_rng(0),
            "numpy's older": lambda: np.random.RandomState(0),
        }[kind]()

    def __iter__(self) -> Iterator[list[int]]:
        order = list(range(12))
        if isinstance(self.rng, torch.Generator):
            order = torch.randperm(12, generator=self.rng).tolist()
        else:
            self.rng.shuffle(order)
        random.shuffle(order)
        yield from (order[begin : begin + 2] for begin in range(0, 12, 2))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class OfAnother(Sampler[list[int]]):
    """Batches of another sampler's order, which has the generator, or of a list that it shuffles."""

    def __init__(self, kind: str) -> None:
        self.sampler = RandomSampler(range(12), generator=torch.Generator().manual_seed(0))
        self.order: Any = {
            "a list": list(range(12)),
            "an array": np.arange(12),
            "another's": None,
            "buckets": {0: [[*range(6)]], 1: [[*range(6, 12)]]},
        }[kind]

    def __iter__(self) -> Iterator[list[int]]:
        order = list(self.sampler) if self.order is None else self.order
        if isinstance(order, dict):
            for bucket in order.values():
                random.shuffle(bucket[0])
            order = [*order[0][0], *order[1][0]]
        elif self.order is not None:
            random.shuffle(order)
        order = list(order)
        yield from (order[begin : begin + 2] for begin in range(0, 12, 2))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def drawn(kind: str) -> list[list[float]]:
    random.seed(0)
    learn = learner()
    data = TensorDataset(torch.arange(12.0)[:, None].expand(12, 3))
    sampler = OfAnother(kind) if kind in NESTED else Buckets(kind)
    batches: DataLoader[Any] = DataLoader(data, batch_sampler=sampler)
    seen = []
    for _ in range(3):
        for (x,) in batches:
            seen.append(x[:, 0].tolist())
            learn(x)
    return seen


@pytest.mark.parametrize("kind", ["torch", "python", "numpy", "numpy's older", *NESTED])
@pytest.mark.parametrize("switching", [False, True])
def test_a_length_that_draws_random_numbers_changes_nothing(switching: bool, kind: str) -> None:
    plain = drawn(kind)
    with hosted(switching=switching):
        assert drawn(kind) == plain


def test_a_class_that_compares_its_loaders() -> None:
    """It has no hash, and two of them may be equal."""

    class Comparable(DataLoader[Any]):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Comparable)

    learn = learner()
    one, other = Comparable(Pool(4), batch_size=2), Comparable(Pool(8), batch_size=2)
    with hosted() as host:
        for batches in (one, other):
            for x in batches:
                learn(x)
        assert (length_of(host, one), length_of(host, other)) == (2, 4)
        assert not host.broken


def test_a_class_that_makes_iterators_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Ones that nothing can be noted at: the seam goes, the batches come."""

    class Own(DataLoader[Any]):
        def _get_iterator(self) -> Any:
            return iter([torch.zeros(3), torch.ones(3)])

    with hosted() as host:
        assert len(list(Own(Pool(4)))) == 2
        assert set(host.broken) == {"loader"}
    assert "the target goes on" in capsys.readouterr().err


class Kept(Sampler[list[int]]):
    """Draws its batches when it is asked for the first time, and keeps them until they were given."""

    def __init__(self) -> None:
        self.batches: list[list[int]] | None = None

    def made(self) -> list[list[int]]:
        if self.batches is None:
            order = torch.randperm(12).tolist()
            self.batches = [order[begin : begin + 2] for begin in range(0, 12, 2)]
        return self.batches

    def __len__(self) -> int:
        return len(self.made())

    def __iter__(self) -> Iterator[list[int]]:
        yield from self.made()
        self.batches = None


@pytest.mark.parametrize("switching", [False, True])
def test_a_length_that_is_kept_changes_nothing(switching: bool) -> None:
    def seen() -> list[list[float]]:
        torch.manual_seed(0)
        learn, found = learner(), []
        data = TensorDataset(torch.arange(12.0)[:, None].expand(12, 3))
        loader: DataLoader[Any] = DataLoader(data, batch_sampler=Kept())
        for _ in range(3):
            for (x,) in loader:
                found.append(x[:, 0].tolist())
                learn(x)
        return found

    plain = seen()
    with hosted(switching=switching):
        assert seen() == plain


def test_the_systems_own_generator_has_no_state_to_keep() -> None:
    class Held:
        def __init__(self) -> None:
            self.system, self.own = random.SystemRandom(), random.Random(0)

    held = Held()
    assert generators_in(held) == [held.own]


class Doubling:
    """What a class makes of its iterator: each batch twice as large."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def __iter__(self) -> Doubling:
        return self

    def __next__(self) -> torch.Tensor:
        doubled: torch.Tensor = 2 * next(self.batches)
        return doubled

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self.batches._reset(loader, first_iter)


class Wrapping(DataLoader[torch.Tensor]):
    """As those of PyTorch Geometric are."""

    def _get_iterator(self) -> Any:
        return Doubling(super()._get_iterator())


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("switching", [False, True])
def test_a_class_that_wraps_its_iterator(switching: bool, lasting: bool) -> None:
    workers: dict[str, Any] = {"num_workers": 1, "persistent_workers": True} if lasting else {}
    learn = learner()
    with hosted(switching=switching) as host:
        batches = Wrapping(torch.ones(12, 3), batch_size=2, **workers)  # type: ignore[arg-type]
        for epoch in range(3):
            host.switch(replace(AS_IS, free_input=switching and epoch == 2))
            for index, x in enumerate(batches):
                assert x.tolist() == 2 * [3 * [2.0]]
                learn(x)
                if epoch == 1 and index == 3:
                    break
        found = training_loader(host)
        assert found is not None
        assert found[1].draws == 6 + 4 + 6
        assert found[1].steps_of_epoch(1) == (6 + 4) / 2
        assert not host.broken
        batches._iterator = None  # ends its workers


def test_a_class_that_wraps_its_iterator_is_served_as_it_is() -> None:
    learn = learner()
    with hosted(INLINE) as host:
        for _ in range(2):
            for x in Wrapping(torch.ones(4, 3), batch_size=2):  # type: ignore[arg-type]
                assert x.tolist() == 2 * [3 * [2.0]]
                learn(x)
        assert not host.broken


def test_a_feeds_own_loader_is_none_of_the_scripts() -> None:
    """It would be taken for one to validate on."""
    learn = learner()
    with hosted(replace(AS_IS, feed=Feed(executor="processes", workers=1))) as host:
        batches: DataLoader[torch.Tensor] = DataLoader(Pool(4), batch_size=2)
        for x in batches:
            learn(x)
        seam = host.seams["loader"]
        assert isinstance(seam, LoaderSeam)
        assert list(seam.records) == [batches]
        assert seam.records[batches].runners


class Stopping(DataLoader[torch.Tensor]):
    """Has something to stop at its end."""

    stopped = 0

    def __del__(self) -> None:
        Stopping.stopped += 1


def test_what_a_class_does_at_its_end_it_does_once() -> None:
    """A copy of it is asked for its length, and another is what a feed is made of."""
    learn, before = learner(), Stopping.stopped
    with hosted(INLINE) as host:
        batches = Stopping(Pool(4), batch_size=2)
        for _ in range(2):
            for x in batches:
                learn(x)
        assert length_of(host, batches) == 2
        assert Stopping.stopped == before
        del batches
        gc.collect()
        assert Stopping.stopped == before + 1
        assert not host.broken


@pytest.mark.parametrize("setup", [AS_IS, INLINE], ids=["its own batches", "from a feed"])
@pytest.mark.parametrize("switching", [False, True])
def test_a_data_set_is_let_go_with_its_epoch(switching: bool, setup: Setup) -> None:
    """A script that goes from shard to shard has memory for one."""
    learn = learner()
    with hosted(setup, switching=switching) as host:
        for _ in range(3):
            shard = Pool(4)
            alive = weakref.ref(shard)
            for x in DataLoader(shard, batch_size=2):
                learn(x)
                del x
            del shard
            assert alive() is None
        assert not host.broken


@torch.no_grad()
def judged_by_none(model: nn.Module) -> None:
    model(torch.ones(1, 2))


def judged(model: nn.Module, batches: Any) -> None:
    judged_by_none(model)
    with torch.no_grad():
        for (x,) in batches:
            model(x)


class Again(Sampler[list[int]]):
    """A sampler of batches without end, as fast loaders have it, which keep their workers so."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            yield from self.sampler


class Lasting(DataLoader[Any]):
    """Has one iterator for all epochs, made with itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", Again(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self) -> int:
        return len(self.batch_sampler.sampler)  # type: ignore[union-attr]

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for _ in range(len(self)):
            yield next(self.iterator)


def test_epochs_of_an_iterator_that_lasts() -> None:
    """Its epochs are seen, and what validates between them."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    clean = []
    with hosted() as host:
        host.most_in_group = 1
        host.listeners.append(lambda step: clean.append(step.clean))
        data = TensorDataset(torch.ones(12, 2))
        train, valid = Lasting(data, batch_size=2), Lasting(data, batch_size=4)
        for _epoch in range(4):
            for (x,) in train:
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
            judged(model, valid)
        assert judged.__code__ in host.judging
        assert judged_by_none.__code__ not in host.judging
        loaded = training_loader(host)
        assert loaded is not None
        record = loaded[1]
        assert (record.length, record.stepped, record.steps) == (6, 3, 18)
        assert not host.broken
    assert [number for number, each in enumerate(clean) if not each and number] == [6, 12, 18]


class Short(Sampler[list[int]]):
    """Tells one batch less than it gives."""

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[number] for number in range(6)])


def test_an_epoch_of_more_batches_than_were_told_is_one() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with hosted() as host:
        host.most_in_group = 1
        loader = DataLoader(TensorDataset(torch.ones(6, 2)), batch_sampler=Short())
        for _epoch in range(4):
            for (x,) in loader:
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
        loaded = training_loader(host)
        assert loaded is not None
        assert (loaded[1].stepped, loaded[1].steps) == (3, 18)


class Boxes(Dataset[Any]):
    """Of each image some boxes: the collate function puts those of all images into the first tensor."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return torch.ones(3, 4), torch.ones(2)


def collated(samples: list[Any]) -> Any:
    return torch.cat([boxes for boxes, _ in samples]), torch.stack([x for _, x in samples])


def test_samples_of_a_batch_are_those_that_the_loader_draws() -> None:
    with hosted() as host:
        for _boxes, _images in DataLoader(Boxes(), batch_size=4, collate_fn=collated):
            pass
        assert host.batch_size == 4
