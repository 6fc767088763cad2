"""Batches made in other ways: what they must not do to a script, whatever its data set."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, get_worker_info

from outpace.remedies.prefetch import Prefetch
from outpace.seams.setup import AS_IS, Feed, Setup
from outpace.serve import cache
from outpace.serve.batches import same_bits
from outpace.serve.feeds import Processes, make_feed
from outpace.serve.open_files import holds_open_file
from tests.remedies.some_evidence import IMAGES
from tests.remedies.trainings import Rows, hosted


def fed(**how: Any) -> Setup:
    return replace(AS_IS, feed=Feed(**how))


CACHED = fed(fetch="cache", executor="inline", cache_bytes=2**24)
SLICED = fed(fetch="slice", executor="inline")
AHEAD = fed(executor="ahead", prefetch=2)
THREADS = fed(executor="threads", workers=4)


def epochs(loader: Any, count: int = 2) -> list[Any]:
    return [
        [
            [t.tolist() for t in batch] if isinstance(batch, list) else batch.tolist()
            for batch in loader
        ]
        for _ in range(count)
    ]


def same(make: Any, setup: Setup) -> bool:
    """Whether a loader gives the same under a Setup."""
    torch.manual_seed(0)
    wanted = epochs(make())
    torch.manual_seed(0)
    with hosted(setup) as host:
        got = epochs(make())
        assert not host.broken
    return bool(wanted == got)


class Large(Dataset[Any]):
    """Samples that make batches of half a megabyte, some of another type."""

    def __len__(self) -> int:
        return 21

    def __getitem__(self, index: int) -> Any:
        noise = torch.rand(2**16)
        return noise + index, torch.full((3, 2**12), index, dtype=torch.float64), index, str(index)


@pytest.mark.parametrize("own", [0, 2])
@pytest.mark.parametrize("batch_size", [2, None])
def test_batches_in_places_are_those_of_plain_workers(own: int, batch_size: Any) -> None:
    def make() -> Any:
        return DataLoader(Large(), batch_size=batch_size, shuffle=True, num_workers=own)

    workers = {"executor": "processes", "workers": 2, "persistent": True}
    found = []
    for place_bytes in (0, 2**20):
        torch.manual_seed(0)
        with hosted(fed(**workers, place_bytes=place_bytes)) as host:
            loader = make()
            kept = [batch for _ in range(3) for batch in loader]
            assert len(kept) == 3 * len(loader)
            next(iter(loader))  # an epoch that is left early
            kept += list(loader)
            found.append(kept)
            assert not host.broken
    assert same_bits(*found)


def test_places_are_used_again_and_only_for_large_batches() -> None:
    loader = DataLoader(Large(), batch_size=2)
    feed = Feed(executor="processes", workers=2, persistent=True, place_bytes=2**20)
    runner = make_feed(loader, feed)
    assert isinstance(runner, Processes)
    assert runner.places is not None
    memory, size = runner.places.memory.data_ptr(), runner.places.size
    seen = {(batch[0].data_ptr() - memory) // size for _ in range(3) for batch in runner.epoch()}
    assert seen <= set(range(len(runner.places.used)))
    assert not runner.places.used.any()
    for without in (replace(feed, place_bytes=100), replace(feed, persistent=False)):
        plain = make_feed(loader, without)
        assert isinstance(plain, Processes)
        assert plain.places is None
        plain.close()
    runner.close()


class Moving(Dataset[Any]):
    """Samples that change with the epoch, as with ``set_epoch`` or a curriculum."""

    epoch = 0

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(100.0 * self.epoch + index)


def test_samples_that_change_between_epochs_are_not_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = Moving()
    with hosted(CACHED):
        loader = DataLoader(data, batch_size=4)
        for data.epoch in range(3):
            assert epochs(loader, 1) == [
                [[100.0 * data.epoch + i for i in range(j, j + 4)] for j in (0, 4, 8)]
            ]
    assert "left out" in capsys.readouterr().err


@pytest.mark.parametrize("place_bytes", [0, 1 << 20])
def test_workers_that_last_have_the_data_set_as_it_is(place_bytes: int) -> None:
    """As the script's own would, that are forked for each epoch."""
    data = Moving()
    feed = Feed(executor="processes", workers=1, persistent=True, place_bytes=place_bytes)
    with hosted(replace(AS_IS, feed=feed)):
        loader = DataLoader(data, batch_size=4)
        for data.epoch in range(3):
            assert epochs(loader, 1) == [
                [[100.0 * data.epoch + i for i in range(j, j + 4)] for j in (0, 4, 8)]
            ]


class Where(Rows):
    """Rows, and whether a worker drew them."""

    def __getitem__(self, index: Any) -> Any:
        return index, get_worker_info() is not None


@pytest.mark.parametrize("lasting", [False, True])
def test_workers_draw_again_what_cannot_be_kept(lasting: bool) -> None:
    """In the order in which they would have all along."""

    def indices() -> tuple[list[Any], list[bool]]:
        torch.manual_seed(0)
        loader = DataLoader(
            Where(20), batch_size=5, shuffle=True, num_workers=1, persistent_workers=lasting
        )
        found = [batch for _ in range(4) for batch in loader]
        return [batch[0].tolist() for batch in found], [bool(batch[1].all()) for batch in found]

    wanted = indices()[0]
    with hosted(fed(fetch="cache", executor="inline", cache_bytes=10)) as host:
        found, by_workers = indices()
        assert not host.broken
    assert found == wanted
    assert by_workers == [False] * 4 + [True] * 12


def test_a_loader_made_anew_each_epoch_finds_the_samples_kept() -> None:
    drawn = []

    class Counting(Rows):
        def __getitem__(self, index: Any) -> Any:
            drawn.append(index)
            return super().__getitem__(index)

    data = Counting(64)
    with hosted(CACHED):
        for _ in range(4):
            list(DataLoader(data, batch_size=8))
    assert len(drawn) < 64 + 5 * 16 + 16


def test_what_is_kept_goes_with_its_data_set() -> None:
    data = Rows(64)
    with hosted(CACHED):
        list(DataLoader(data, batch_size=8))
        assert len(cache._kept) >= 1
        gone = weakref.ref(data)
        del data
        gc.collect()
        assert gone() is None


@pytest.mark.parametrize("setup", [AHEAD, THREADS, fed(executor="processes", workers=1)])
def test_a_loader_is_let_go(setup: Setup) -> None:
    with hosted(setup):
        loader = DataLoader(Rows(32), batch_size=8)
        list(loader)
        gone = weakref.ref(loader)
        del loader
        gc.collect()
        assert gone() is None


class Pairs(Sampler[Any]):
    """A sampler that gives more than an index."""

    def __iter__(self) -> Any:
        return iter([(i, 2) for i in range(12)])

    def __len__(self) -> int:
        return 12


class Scaled(Dataset[Any]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, pair: Any) -> Any:
        index, scale = pair
        return torch.tensor(float(index * scale))


@pytest.mark.parametrize("setup", [CACHED, SLICED, AHEAD, THREADS])
def test_a_sampler_of_pairs(setup: Setup) -> None:
    assert same(lambda: DataLoader(Scaled(), batch_size=4, sampler=Pairs()), setup)


class Eager(Sampler[Any]):
    """A batch sampler that draws random numbers as soon as it is asked for an iterator."""

    def __iter__(self) -> Any:
        return iter(torch.randperm(12).view(3, 4).tolist())

    def __len__(self) -> int:
        return 3


class Many(Rows):
    """Draws batches itself."""

    def __getitems__(self, indices: list[int]) -> Any:
        return [(torch.tensor(self.x[i]) * 2, torch.tensor(self.y[i])) for i in indices]


class Ragged(Dataset[Any]):
    """Samples of several shapes, padded by the collate function."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return torch.ones(1 + index % 3) * index


def padded(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


LOADERS = {
    "shuffled": lambda: DataLoader(Rows(30), batch_size=4, shuffle=True),
    "dropping the last": lambda: DataLoader(Rows(30), batch_size=4, shuffle=True, drop_last=True),
    "own generator": lambda: DataLoader(
        Rows(30), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(4)
    ),
    "lasting workers": lambda: DataLoader(
        Rows(30), batch_size=4, shuffle=True, num_workers=1, persistent_workers=True
    ),
    "lasting workers, own generator": lambda: DataLoader(
        Rows(30),
        batch_size=4,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(4),
    ),
    "eager batch sampler": lambda: DataLoader(Rows(12), batch_sampler=Eager()),
    "eager batch sampler, workers": lambda: DataLoader(
        Rows(12), batch_sampler=Eager(), num_workers=1
    ),
    "no batches": lambda: DataLoader(Rows(9), batch_size=None),
    "many at once": lambda: DataLoader(Many(30), batch_size=4, shuffle=True),
    "ragged": lambda: DataLoader(Ragged(), batch_size=4, shuffle=True, collate_fn=padded),
    "a list": lambda: DataLoader([torch.tensor(i) for i in range(9)], batch_size=4),  # type: ignore[arg-type]
}
SETUPS = {
    "cached": CACHED,
    "sliced": SLICED,
    "ahead": AHEAD,
    "threads": THREADS,
    "processes": fed(executor="processes", workers=1, persistent=True),
    "cached ahead": fed(fetch="cache", executor="ahead", cache_bytes=2**24),
}


@pytest.mark.parametrize("how", sorted(SETUPS))
@pytest.mark.parametrize("what", sorted(LOADERS))
def test_batches_come_in_the_same_order(what: str, how: str) -> None:
    if what == "eager batch sampler" and how == "processes":
        pytest.skip("torch itself asks such a sampler twice where there are workers")
    assert same(LOADERS[what], SETUPS[how])


class Broken(Rows):
    """One sample cannot be read."""

    def __getitem__(self, index: Any) -> Any:
        if 9 in np.atleast_1d(index):
            raise OSError("sample 9 is broken")
        return super().__getitem__(index)


def passing_over(loader: Any) -> list[Any]:
    """All batches of two epochs but those that cannot be made."""
    found: list[Any] = []
    for _ in range(2):
        batches = iter(loader)
        while True:
            try:
                found.append(next(batches))
            except OSError:
                found.append("broken")
            except StopIteration:
                break
    return found


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("how", sorted(SETUPS))
def test_a_script_may_go_on_after_a_batch_that_cannot_be_made(how: str, workers: int) -> None:
    def made() -> list[Any]:
        torch.manual_seed(0)
        return passing_over(DataLoader(Broken(30), batch_size=4, shuffle=True, num_workers=workers))

    wanted = made()
    assert wanted.count("broken") == 2
    assert len(wanted) == 16
    with hosted(SETUPS[how]) as host:
        assert same_bits(made(), wanted)
        assert not host.broken


class InWorkers(Dataset[Any]):
    """Can be drawn from in its workers alone, which draw random numbers."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        if get_worker_info() is None:
            raise AttributeError("no file is open here")
        return index + torch.rand(1)


def beside(dataset: Any, **how: Any) -> list[Any]:
    """Two epochs of a training's loader and of another one; random numbers after them."""
    torch.manual_seed(0)
    train = DataLoader(Rows(12), batch_size=4, shuffle=True)
    valid = DataLoader(dataset, batch_size=4, **how)
    found = [batch for _ in range(2) for loader in (train, valid) for batch in loader]
    return [*found, torch.rand(2)]


@pytest.mark.parametrize("how", ["cached", "sliced", "ahead", "threads"])
def test_a_loader_that_bears_no_feed_gives_its_own_batches(
    how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the training's loaders were tried, and a recipe is for all of them."""

    made = partial(beside, InWorkers(), shuffle=True, num_workers=1)
    wanted = made()
    with hosted(SETUPS[how]) as host:
        assert same_bits(made(), wanted)
        assert not host.broken
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "gives its own batches: AttributeError: no file is open here" in said[0]
    assert f"{Path(__file__).name}:" in said[0]


class Episodes(Dataset[Any]):
    """Has no length: a sampler says which there are."""

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([float(index)])


@pytest.mark.parametrize("how", sorted(SETUPS))
def test_a_loader_for_which_no_feed_can_be_made_gives_its_own_batches(how: str) -> None:
    made = partial(beside, Episodes(), sampler=range(8))
    wanted = made()
    with hosted(SETUPS[how]) as host:
        assert same_bits(made(), wanted)
        assert not host.broken


class Drawn(Dataset[Any]):
    """Its samples are drawn by chance."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return index + torch.rand(1)


@pytest.mark.parametrize("how", ["cached", "sliced"])
def test_what_cannot_be_kept_leaves_the_generators_where_they_were(how: str) -> None:
    def made() -> Any:
        torch.manual_seed(0)
        return [*DataLoader(Drawn(), batch_size=4), torch.rand(2)]

    wanted = made()
    with hosted(SETUPS[how]):
        assert same_bits(made(), wanted)


class Squeezed(Dataset[Any]):
    """A slice of one sample has another shape than that sample in a batch."""

    x = torch.arange(9.0)[:, None]

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: Any) -> Any:
        return self.x[index].squeeze()


def test_a_batch_of_another_size_is_compared_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert same(lambda: DataLoader(Squeezed(), batch_size=4), SLICED)
    assert "fetching by slice is left out" in capsys.readouterr().err


NOW = 0


def at_now(worker: int) -> None:
    info: Any = get_worker_info()
    info.dataset.epoch = NOW


def test_workers_that_last_are_what_their_first_function_makes_of_them() -> None:
    def made() -> list[Any]:
        global NOW
        loader = DataLoader(Moving(), batch_size=4, num_workers=1, worker_init_fn=at_now)
        found = []
        for epoch in range(3):
            NOW = epoch
            found += list(loader)
        return found

    wanted = made()
    assert wanted[-1].min() >= 200
    with hosted(fed(executor="processes", workers=1, persistent=True)):
        assert same_bits(made(), wanted)


def one_more(samples: list[Any]) -> Any:
    return torch.utils.data.default_collate(samples)[0] + 1


@pytest.mark.parametrize(
    "how",
    [CACHED.feed, SLICED.feed, AHEAD.feed, THREADS.feed]
    + [Feed(executor="processes", workers=1, persistent=lasts) for lasts in (True, False)],
    ids=lambda feed: f"{feed.fetch} {feed.executor} {feed.persistent}",
)
def test_what_a_script_sets_between_epochs_counts(how: Feed) -> None:
    """torch lets it give another collate function, another generator and the like."""

    def changing() -> Any:
        loader = DataLoader(Rows(12), batch_size=4, shuffle=True)
        yield from loader
        loader.collate_fn = one_more
        yield from loader
        loader.generator = torch.Generator().manual_seed(1)
        yield from loader
        yield torch.rand(1)

    torch.manual_seed(0)
    wanted = list(changing())
    torch.manual_seed(0)
    with hosted(replace(AS_IS, feed=how)) as host:
        assert same_bits(wanted, list(changing()))
        assert not host.broken


def test_a_data_set_that_grows_is_drawn_from_again() -> None:
    data = [torch.tensor(float(i)) for i in range(8)]

    class Growing(Dataset[Any]):
        def __len__(self) -> int:
            return len(data)

        def __getitem__(self, index: int) -> Any:
            return data[index]

    with hosted(CACHED):
        loader = DataLoader(Growing(), batch_size=4)
        assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        data.append(torch.tensor(8.0))
        assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(torch.arange(10.0))


@pytest.mark.parametrize("how", sorted(SETUPS))
def test_a_stream_comes_in_order(how: str) -> None:
    assert same(lambda: DataLoader(Stream(), batch_size=4), SETUPS[how])


def test_an_open_file_is_not_shared(tmp_path: Path) -> None:
    path = tmp_path / "rows.bin"
    path.write_bytes(bytes(range(64)))

    class Bytes(Dataset[Any]):
        def __init__(self) -> None:
            self.file = path.open("rb")

        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> Any:
            self.file.seek(index)
            return self.file.read(1)[0]

    data = Bytes()
    assert holds_open_file(data)
    assert holds_open_file(torch.utils.data.Subset(data, [1, 2]))
    assert not holds_open_file(Rows(4))
    seen = set()
    with hosted(THREADS):
        for _ in DataLoader(data, batch_size=8):
            seen |= {t.name for t in threading.enumerate()}
    assert not any(name.startswith("outpace") for name in seen)
    by_processes = Feed(executor="processes", workers=2)
    with pytest.raises(NotImplementedError, match="keeps a file open, which processes share"):
        make_feed(DataLoader(data, batch_size=8), by_processes)
    make_feed(DataLoader(data, batch_size=8, num_workers=2), by_processes).close()


class Side:
    """Batches of two loaders side by side, or of one twice: who draws its seed first?"""

    def __init__(self, workers: int, twice: bool) -> None:
        data = Rows(20)
        self.one = DataLoader(data, batch_size=4, shuffle=True, num_workers=workers)
        other = DataLoader(data, batch_size=4, shuffle=True, num_workers=workers)
        self.other = self.one if twice else other

    def __iter__(self) -> Any:
        for pair in zip(self.one, self.other, strict=True):
            yield [tensor for batch in pair for tensor in batch]
        yield torch.rand(2)


@pytest.mark.parametrize("how", sorted(SETUPS))
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("twice", [False, True])
def test_loaders_side_by_side_come_in_the_same_orders(how: str, workers: int, twice: bool) -> None:
    assert same(lambda: Side(workers, twice), SETUPS[how])


def test_two_iterators_of_one_loader_at_once() -> None:
    with hosted(AHEAD):
        loader = DataLoader(Rows(32), batch_size=8)
        for one, other in zip(loader, loader, strict=True):
            assert torch.equal(one[0], other[0])


@pytest.mark.timeout(60)
def test_an_epoch_begins_while_persistent_workers_rest() -> None:
    """They have to answer to it: asleep they would not, and the training would hang."""
    free = replace(AS_IS, free_input=True)
    model = nn.Linear(9, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with hosted(switching=True) as host:
        loader = DataLoader(Rows(64), batch_size=16, num_workers=2, persistent_workers=True)
        for epoch in range(4):
            given = 0
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                given += 1
                if epoch:
                    host.switch(free if given > 2 else AS_IS)
            assert given == 4
        assert not host.broken


LASTING = {"executor": "processes", "workers": 2, "persistent": True}


@pytest.mark.parametrize("place_bytes", [pytest.param(0, marks=pytest.mark.slow), 2**20])
def test_an_epoch_beside_another_has_batches_of_its_own(place_bytes: int) -> None:
    def both() -> Any:
        loader = DataLoader(Large(), batch_size=2, shuffle=True, num_workers=2)
        first = list(loader)
        return [first, *zip(loader, loader, strict=True), list(loader)]

    torch.manual_seed(0)
    wanted = both()
    torch.manual_seed(0)
    with hosted(fed(**LASTING, place_bytes=place_bytes)) as host:
        got = both()
        assert not host.broken
    numbers = [[batch[2] for batch in part] for part in wanted]
    assert same_bits([[batch[2] for batch in part] for part in got], numbers)


@pytest.mark.timeout(60)
def test_workers_that_ctrl_c_has_ended_are_begun_anew() -> None:
    torch.manual_seed(0)
    wanted = epochs(DataLoader(Rows(30), batch_size=4, shuffle=True), 3)
    torch.manual_seed(0)
    loader = DataLoader(Rows(30), batch_size=4, shuffle=True)
    runner = make_feed(loader, Feed(**LASTING))
    assert isinstance(runner, Processes)
    got = []
    for _ in range(3):
        got.append([[t.tolist() for t in batch] for batch in runner.epoch()])
        for worker in runner.kept._workers:
            os.kill(worker.pid, signal.SIGINT)  # as a terminal does
            worker.join(20)
    runner.close()
    assert got == wanted


def told_by_a_fork(found: Any) -> Any:
    """What a forked child finds, within a minute."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=lambda: theirs.send(found()))
    child.start()
    try:
        assert ours.poll(60), "the fork hangs"
        return ours.recv()
    finally:
        child.kill()
        child.join()


@pytest.mark.parametrize("setup", [THREADS, fed(**LASTING), fed(**LASTING, place_bytes=2**20)])
def test_a_fork_draws_batches_of_its_own(setup: Setup) -> None:
    loader = DataLoader(Large(), batch_size=2)

    def numbers(epoch: Any) -> list[int]:
        return [number for batch in epoch for number in batch[2].tolist()]

    runner = make_feed(loader, setup.feed)
    try:
        assert numbers(runner.epoch()) == list(range(21))
        assert told_by_a_fork(lambda: numbers(runner.epoch())) == list(range(21))
        assert numbers(runner.epoch()) == list(range(21))
    finally:
        runner.close()


class InAFile(Dataset[Any]):
    """Numbers of a file that is kept open: who reads moves its place."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(range(64)))
        self.file = path.open("rb", buffering=0)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        self.file.seek(index)
        time.sleep(1e-3)
        return self.file.read(1)[0]


def test_threads_of_two_loaders_do_not_draw_from_one_file_at_once(tmp_path: Path) -> None:
    data = InAFile(tmp_path / "numbers")
    with hosted(AHEAD):
        train, valid = (
            DataLoader(torch.utils.data.Subset(data, range(first, 64, 2)), batch_size=4)
            for first in (0, 1)
        )
        drawn = []
        for step, batch in enumerate(train):
            drawn += batch.tolist()
            if step == 0:
                assert torch.cat(list(valid)).tolist() == list(range(1, 64, 2))
        assert drawn == list(range(0, 64, 2))


@pytest.mark.parametrize(
    ("interrupted", "streams", "kept"),
    [(False, ("torch",), "exact"), (True, ("torch",), "numerics"), (True, (), "exact")],
)
def test_a_validation_in_mid_epoch_draws_too(
    interrupted: bool, streams: tuple[str, ...], kept: str
) -> None:
    source = msgspec.structs.replace(
        IMAGES.input, random_streams=streams, step_streams=(), interrupted=interrupted
    )
    evidence = msgspec.structs.replace(IMAGES, input=source)
    assert Prefetch().kept(evidence, {"batches": 2}) == kept


def test_an_epoch_that_is_left_is_begun_anew_in_a_trial_too() -> None:
    """Under a recipe each `next(iter(loader))` makes its batches, and throws away those made ahead."""
    made = []

    class Noting(Rows):
        def __getitem__(self, index: int) -> Any:
            made.append(index)
            return super().__getitem__(index)

    with hosted(fed(executor="inline", fetch="items"), switching=True) as host:
        loader = DataLoader(Noting(12), batch_size=4)
        net = nn.Linear(8, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(4):
            x, _ = next(iter(loader))
            net(x[:, :8]).sum().backward()
            optimizer.step()
        assert not host.broken
    assert set(made) == {0, 1, 2, 3}
