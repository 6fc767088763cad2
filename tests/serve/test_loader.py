from __future__ import annotations

import gc
import hashlib
import itertools
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import TensorDataset

from outpace.errors import DataError, OutpaceError, UsageError
from outpace.serve import loader as loader_module
from outpace.serve import processes
from outpace.serve.climb import Climb
from outpace.serve.executors import start
from outpace.serve.loader import Loader
from outpace.serve.making import Arrival, Made, Request
from outpace.serve.rates import Choice

SIZE = 103


class Numbers:
    """Samples that are costly enough for the choice of workers not to matter to the tests."""

    def __init__(self, size: int = SIZE, bad: tuple[int, ...] = ()) -> None:
        self.size, self.bad = size, bad

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index in self.bad:
            raise OSError(f"cannot read number {index}")
        return {"id": index, "x": np.full(4, index, np.float32)}

    def where(self, index: int) -> str:
        return f"numbers/{index}.bin"


def noisy(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"id": sample["id"], "x": sample["x"] + rng.random(4, dtype=np.float32)}


class Wide(Numbers):
    """Samples that make batches of half a megabyte."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": index, "x": np.full(1 << 14, index, np.float32)}


class Slow(Numbers):
    """Is still being made when the training forks."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        time.sleep(2e-3)
        return super().__getitem__(index)


class Global(Numbers):
    """Draws from the generators of the process."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": index, "x": random.random() + np.random.rand(2) + torch.rand(2).numpy()}


def digest(batches: Any) -> str:
    found = hashlib.sha256()
    for batch in batches:
        found.update(batch["id"].numpy().tobytes() + batch["x"].numpy().tobytes())
    return found.hexdigest()


def ids(batches: Any) -> list[int]:
    return [i for batch in batches for i in batch["id"].tolist()]


WAYS = [("none", 0), ("threads", 1), ("threads", 3), ("processes", 1), ("processes", 2)]


@pytest.fixture
def loaders() -> Any:
    made: list[Loader] = []

    def make(*args: Any, **kwargs: Any) -> Loader:
        made.append(Loader(*args, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_an_epoch_gives_each_sample_once_and_the_next_another_order(loaders: Any) -> None:
    loader = loaders(Numbers(), 8, executor="none")
    first, second = ids(loader), ids(loader)
    assert sorted(first) == sorted(second) == list(range(SIZE))
    assert first != second
    assert len(loader) == 13
    assert loader.epoch == 2


def test_unshuffled_is_in_order(loaders: Any) -> None:
    assert ids(loaders(Numbers(), 8, executor="none", shuffle=False)) == list(range(SIZE))


@pytest.mark.parametrize("source", [Numbers(), Global()], ids=["own", "global"])
def test_all_workers_give_the_same_bits(loaders: Any, source: Any) -> None:
    transform = noisy if type(source) is Numbers else None
    digests = set()
    for kind, workers in WAYS:
        if kind == "threads" and isinstance(source, Global):
            continue
        loader = loaders(source, 8, transform=transform, executor=kind, workers=workers, seed=5)
        digests.add((digest(loader), digest(loader)))
    assert len(digests) == 1
    one, two = digests.pop()
    assert one != two


def test_threads_are_refused_to_samples_that_draw_from_the_process(loaders: Any) -> None:
    with pytest.raises(UsageError, match="which threads would share"):
        next(iter(loaders(Global(), 8, executor="threads")))


@pytest.mark.parametrize(("kind", "workers"), WAYS)
def test_an_epoch_under_way_goes_on_in_a_fork(loaders: Any, kind: str, workers: int) -> None:
    wanted = ids(loaders(Numbers(), 8, executor="none"))
    loader = loaders(Slow(), 8, executor=kind, workers=workers)
    batches = iter(loader)
    first = ids([next(batches)])
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def rest() -> None:
        theirs.send(ids(batches))
        loader.close()

    child = multiprocessing.get_context("fork").Process(target=rest)
    child.start()
    try:
        assert ours.poll(60), "the fork hangs"
        assert first + ours.recv() == wanted
    finally:
        child.kill()
        child.join()
    assert first + ids(batches) == wanted


def test_the_trainings_generators_are_left_alone(loaders: Any) -> None:
    ways = [(Numbers(), kind, workers) for kind, workers in WAYS]
    ways += [(Global(), "none", 0), (Global(), "processes", 1), (Global(), "auto", "auto")]
    for source, kind, workers in ways:
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        transform = noisy if type(source) is Numbers else None
        digest(loaders(source, 8, transform=transform, executor=kind, workers=workers))
        drawn = (float(torch.rand(())), random.random(), float(np.random.rand()))
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        assert drawn == (float(torch.rand(())), random.random(), float(np.random.rand()))


def test_the_trainings_threads_are_as_many_as_before(loaders: Any) -> None:
    before = torch.get_num_threads()
    digest(loaders(Numbers(), 8, executor="threads", workers=3))
    assert torch.get_num_threads() == before
    torch.ones(300_000).sum()
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("kind", "workers"), WAYS[:3])
@pytest.mark.parametrize(("rank", "world"), [(0, 1), (1, 2)])
def test_a_batch_tells_its_samples(
    loaders: Any, kind: str, workers: int, rank: int, world: int
) -> None:
    loader = loaders(Numbers(), 8, executor=kind, workers=workers, rank=rank, world=world)
    for _ in range(2):
        for batch in loader:
            assert batch["id"].tolist() == loader.indices.tolist()
    next(iter(loader))
    again = loaders(Numbers(), 8, executor=kind, workers=workers, rank=rank, world=world)
    again.load_state_dict(loader.state_dict())
    for batch in again:
        assert batch["id"].tolist() == again.indices.tolist()


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world", [2, 4])
def test_ranks_share_an_epoch(loaders: Any, world: int, drop_last: bool) -> None:
    each = [
        [
            b["id"].tolist()
            for b in loaders(
                Numbers(), 4, rank=r, world=world, drop_last=drop_last, executor="none"
            )
        ]
        for r in range(world)
    ]
    assert len({len(batches) for batches in each}) == 1
    together = [i for batches in zip(*each, strict=True) for batch in batches for i in batch]
    if drop_last:
        assert len(together) == len(set(together)) == SIZE // (4 * world) * 4 * world
    else:
        assert set(together) == set(range(SIZE))
        assert len(together) < SIZE + world


def interleaved(each: list[list[torch.Tensor]]) -> list[int]:
    """The order of an epoch from what its ranks were given."""
    found = []
    for batches in zip(*each, strict=True):
        for row in itertools.zip_longest(*(b.tolist() for b in batches)):
            found += [i for i in row if i is not None]
    return found


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("batch", [2, 5])
def test_an_epoch_goes_on_with_other_ranks_and_batches(
    loaders: Any, world: int, batch: int
) -> None:
    size = 120
    whole = ids(loaders(Numbers(size), 8, executor="none"))
    begun = loaders(Numbers(size), 8, executor="none")
    iterator = iter(begun)
    for _ in range(5):
        next(iterator)
    state = begun.state_dict()
    assert state["consumed"] == 40
    each = []
    for rank in range(world):
        loader = loaders(Numbers(size), batch, executor="none", rank=rank, world=world)
        loader.load_state_dict(state)
        each.append([b["id"] for b in loader])
    assert interleaved(each) == whole[40:]


def test_samples_may_come_more_often_than_once(loaders: Any) -> None:
    loader = loaders(Numbers(4), batch_size=2, executor="none")
    loader.repeat([1.0, 2.5, 1.0, 0.0])
    assert len(loader) == 3
    epochs = [ids(loader) for _ in range(2)]
    for epoch in epochs:
        assert len(epoch) == 5
        counts = [epoch.count(i) for i in range(4)]
        assert counts[3] == 0
        assert all(abs(n - f) < 1.2 for n, f in zip(counts, [1.0, 2.5, 1.0, 0.0], strict=True))
    first = next(iter(loader))
    state = loader.state_dict()
    again = loaders(Numbers(4), batch_size=2, executor="none")
    with pytest.raises(DataError, match="samples"):
        again.load_state_dict(state)
    again.repeat([1.0, 2.5, 1.0, 0.0])
    again.load_state_dict({**state, "consumed": 0})
    assert next(iter(again))["id"].tolist() == first["id"].tolist()
    with pytest.raises(UsageError, match="3 factors for 4 samples"):
        loader.repeat([1.0, 2.0, 3.0])
    with pytest.raises(UsageError, match="factors are 0 or more"):
        loader.repeat([1.0, 2.0, -1.0, 1.0])


@pytest.mark.parametrize("source", [Numbers(4), Global(4)])
def test_each_time_a_sample_comes_it_has_numbers_of_its_own(loaders: Any, source: Any) -> None:
    transform = noisy if type(source) is Numbers else None

    def repeated(kind: str = "none", workers: int = 0) -> Loader:
        loader: Loader = loaders(
            source, 3, transform=transform, executor=kind, workers=workers, seed=5
        )
        loader.repeat([3.0, 1.0, 2.0, 0.0])
        return loader

    def drawn(batches: Any) -> list[tuple[int, float]]:
        pairs = (zip(b["id"].tolist(), b["x"][:, 0].tolist(), strict=True) for b in batches)
        return [pair for some in pairs for pair in some]

    loader = repeated()
    whole = drawn(loader)
    assert len(whole) == len(set(whole)) == 6
    assert drawn(repeated("processes", 1)) == whole
    begun = repeated()
    batches = iter(begun)
    first = drawn([next(batches)])
    again = repeated()
    again.load_state_dict(begun.state_dict())
    assert first + drawn(again) == whole
    plain = loaders(source, 3, transform=transform, executor="none", seed=5)
    once = {index: x for index, x in whole if index == 1}
    assert once.items() <= dict(drawn(plain)).items()


def test_a_state_knows_how_often_samples_come(loaders: Any) -> None:
    def repeated(factors: list[float] | None) -> Loader:
        loader: Loader = loaders(Numbers(4), batch_size=2, executor="none")
        if factors is not None:
            loader.repeat(factors)
        return loader

    begun = repeated([2.0, 1.0, 1.0, 0.0])
    batches = iter(begun)
    next(batches)
    state = begun.state_dict()
    for other in (None, [1.0, 1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 2.0]):
        with pytest.raises(DataError, match="the state is of a loader with repeats"):
            repeated(other).load_state_dict(state)
    begun.repeat([0.0, 1.0, 1.0, 3.0])  # for the next epoch
    assert begun.state_dict() == state
    assert begun.left == 1
    again = repeated([2.0, 1.0, 1.0, 0.0])
    again.load_state_dict(state)
    assert ids(again) == ids(batches)
    assert begun.state_dict()["samples"] == 5


def test_numbers_of_numpy_are_numbers(loaders: Any) -> None:
    loader = loaders(
        Numbers(),
        np.uint8(8),
        executor="none",
        workers=np.int64(0),
        seed=np.int64(3),
        rank=np.int64(0),
        world=np.int64(1),
    )
    loader.set_epoch(np.int64(2))
    next(iter(loader))
    assert {type(value) for value in loader.state_dict().values()} == {int, bool, type(None)}
    loader.set_epoch(2)
    other = loaders(Numbers(), 8, executor="none", seed=3)
    other.set_epoch(2)
    assert digest(loader) == digest(other)


@pytest.mark.parametrize(("kind", "workers"), [*WAYS, ("auto", "auto")])
def test_batches_are_of_any_class(loaders: Any, kind: str, workers: Any) -> None:
    def collate(samples: list[Any]) -> Any:
        return pack_sequence([torch.ones(3, 2), torch.ones(2, 2)]), torch.ones(2, 3).shape

    loader = loaders(Numbers(), 8, executor=kind, workers=workers, collate=collate)
    for packed, shape in loader:
        assert isinstance(packed, PackedSequence)
        assert shape == torch.Size([2, 3])


def test_a_batch_that_cannot_be_handed_over_is_told_also_later(loaders: Any) -> None:
    def collate(samples: list[Any]) -> Any:
        return [sample["id"] if sample["id"] < 60 else lambda: 1 for sample in samples]

    loader = loaders(Numbers(), 8, executor="processes", workers=1, collate=collate, shuffle=False)
    with pytest.raises(DataError, match="a batch cannot be handed over by a process"):
        list(loader)


def test_a_batch_that_cannot_be_handed_over_is_told_whatever_workers_there_are(
    loaders: Any,
) -> None:
    weight = torch.ones(2, requires_grad=True)

    def collate(samples: list[Any]) -> Any:
        return torch.tensor([sample["id"] for sample in samples])[:, None] * weight

    loader = loaders(Numbers(), 8, executor="processes", collate=collate)
    with pytest.raises(DataError, match="cannot be handed over by a process"):
        list(loader)


def test_memory_is_blamed_only_for_workers_that_were_ended(
    loaders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(*args: Any) -> Any:
        raise RuntimeError("unable to mmap")

    loader = loaders(Numbers(), 8, executor="processes", workers=1)
    next(iter(loader))
    monkeypatch.setattr(loader._executor, "_begun", begun)
    with pytest.raises(DataError, match="cannot go on: unable to mmap") as told:
        next(iter(loader))
    assert told.value.hint is None


@pytest.fixture
def spawned() -> Any:
    """Worker processes begin anew instead of as forks."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("spawn", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


@pytest.mark.usefixtures("spawned")
def test_what_cannot_be_handed_to_processes_goes_by_threads(
    loaders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outpace.serve.tuner.CHEAP_S", 0.0)
    monkeypatch.setattr("outpace.serve.tuner.CLOSE", 1e9)
    monkeypatch.setattr("outpace.serve.tuner.PROBED", 1e9)
    monkeypatch.setattr("outpace.serve.tuner.TRY_S", 0.05)
    loader = loaders(Numbers(), 8, transform=lambda sample: sample)
    assert sorted(ids(loader)) == list(range(SIZE))
    assert loader.choice.kind != "processes"
    assert loader.notes[0].startswith("processes are left out: transform cannot be pickled: ")
    assert "lambda" in loader.notes[0]
    with pytest.raises(UsageError, match="transform cannot be pickled"):
        next(iter(loaders(Numbers(), 8, transform=lambda sample: sample, executor="processes")))


@pytest.mark.usefixtures("spawned")
def test_processes_that_are_not_forked_make_the_same(loaders: Any) -> None:
    rows = TensorDataset(torch.arange(40.0))
    loader = loaders(rows, 8, executor="none", shuffle=False)
    wanted = [batch[0].tolist() for batch in loader]
    assert loader.maker._slices is not None
    loader._wanted, loader.choice = ("processes", 1), None
    loader.close()
    assert [batch[0].tolist() for batch in loader] == wanted


def test_batches_may_get_another_size(loaders: Any) -> None:
    for kind, workers in WAYS:
        loader = loaders(Numbers(), 8, executor=kind, workers=workers)
        assert sorted(ids(loader)) == list(range(SIZE))
        loader.resize(20)
        assert len(loader) == 6
        other = loaders(Numbers(), 20, executor="none")
        other.set_epoch(1)
        assert digest(loader) == digest(other)
    with pytest.raises(UsageError, match="a batch of 0 samples"):
        loader.resize(0)


@pytest.mark.parametrize(("kind", "workers"), WAYS)
def test_what_is_set_in_mid_epoch_is_for_the_next_iteration(
    loaders: Any, kind: str, workers: int
) -> None:
    whole = ids(loaders(Numbers(), 8, executor="none"))
    loader, found = loaders(Numbers(), 8, executor=kind, workers=workers), list[int]()
    for batch in loader:
        found += batch["id"].tolist()
        assert loader.state_dict()["consumed"] == len(found)
        assert loader.indices.tolist() == batch["id"].tolist()
        if len(found) == 24:
            loader.repeat([2.0] + [0.5] * (SIZE - 1))
            loader.resize(20)
    assert found == whole
    assert loader.epoch == 1
    assert [len(batch["id"]) for batch in loader] == [20, 20, 13]


class InAFile(Numbers):
    """Numbers of a file that is kept open: who reads moves its place."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        np.arange(SIZE, dtype=np.int32).tofile(path)
        self.file = path.open("rb")

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.file.seek(4 * index)
        time.sleep(1e-4)
        return {"id": index, "x": np.frombuffer(self.file.read(4), np.int32)}


def test_one_place_in_a_file_is_not_shared(loaders: Any, tmp_path: Path) -> None:
    source = InAFile(tmp_path / "numbers")
    loader = loaders(source, 8)
    assert all(batch["x"][:, 0].tolist() == batch["id"].tolist() for batch in loader)
    assert loader.choice[:2] == ("none", 0)
    assert "keeps a file open" in loader.choice.reason
    with pytest.raises(UsageError, match="keeps a file open"):
        next(iter(loaders(source, 8, executor="threads")))
    source.file.close()


class OpenedLate(Numbers):
    """Opens the file when the first sample is drawn: so each worker has its own."""

    file = None

    def __init__(self, path: Path, attribute: bool) -> None:
        super().__init__()
        np.arange(SIZE, dtype=np.int32).tofile(path)
        self.path = path
        if attribute:
            self.file = None

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.file is None:
            self.file = self.path.open("rb", buffering=0)
        self.file.seek(4 * index)
        time.sleep(1e-3)
        return {"id": index, "x": np.frombuffer(self.file.read(4), np.int32)}


@pytest.mark.parametrize("attribute", [False, True])
def test_workers_open_a_file_of_their_own(loaders: Any, tmp_path: Path, attribute: bool) -> None:
    source = OpenedLate(tmp_path / "numbers", attribute)
    for batch in loaders(source, 8, executor="processes", workers=2):
        assert batch["x"][:, 0].tolist() == batch["id"].tolist()
    assert source.file is None


def test_a_file_that_is_opened_late_leaves_processes_to_choose(
    loaders: Any, tmp_path: Path
) -> None:
    source = OpenedLate(tmp_path / "numbers", True)
    loader = loaders(source, 8)
    for _ in range(3):
        for batch in loader:
            assert batch["x"][:, 0].tolist() == batch["id"].tolist()
        assert loader.choice.kind == "processes"
        assert source[7]["x"].tolist() == [7]  # opened in the training's process, and not handed on
    assert "threads are left out: the data set opens a file" in loader.notes[0]
    with pytest.raises(UsageError, match="keeps a file open"):
        next(iter(loaders(OpenedLate(tmp_path / "numbers", True), 8, executor="threads")))


class Dying(Numbers):
    """Ends the process that draws it once."""

    def __init__(self, once: Path) -> None:
        super().__init__()
        self.once = once

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 30 and not self.once.exists():
            self.once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_worker_that_is_killed_is_told_and_others_go_on(loaders: Any, tmp_path: Path) -> None:
    loader = loaders(Dying(tmp_path / "once"), 8, executor="processes", workers=1, shuffle=False)
    with pytest.raises(DataError, match="worker processes cannot go on: DataLoader worker") as told:
        ids(loader)
    assert "memory" in str(told.value.hint)
    assert ids(loader) == list(range(SIZE))


def worker_processes() -> list[Any]:
    return [child for child in multiprocessing.active_children() if child.daemon]


def test_workers_that_were_ended_are_begun_anew(loaders: Any) -> None:
    loader = loaders(Numbers(), 8, executor="processes", workers=2)
    digests = set()
    for _ in range(2):
        loader.set_epoch(0)
        digests.add(digest(loader))
        for worker in worker_processes():
            worker.terminate()
            worker.join(20)
            assert worker.exitcode is not None
    assert len(digests) == 1


class Anywhere:
    """Room for any batch."""

    def wait(self) -> None:
        pass

    def made(self, size: int) -> None:
        pass


def test_ctrl_c_interrupts_a_worker_only_while_it_is_at_a_batch() -> None:
    """Where it hands one over or rests, an exception could leave a lock held."""
    at: list[str] = []

    def make(request: Request) -> Made:
        at.append("making")
        with pytest.raises(KeyboardInterrupt):
            processes._interrupted(signal.SIGINT, None)
        if request.epoch:
            raise MemoryError
        return Made(None)

    def pack(batch: Any) -> Any:
        at.append("handing over")
        processes._interrupted(signal.SIGINT, None)

    worker: Any = processes._InWorker(make, pack, Anywhere())  # type: ignore[arg-type]
    processes._interrupted(signal.SIGINT, None)
    worker[Request(0, np.arange(2))]
    assert at == ["making", "handing over"]
    processes._interrupted(signal.SIGINT, None)
    with pytest.raises(MemoryError):
        worker[Request(1, np.arange(2))]
    processes._interrupted(signal.SIGINT, None)


class Endless(Numbers):
    def __getitem__(self, index: int) -> dict[str, Any]:
        if torch.utils.data.get_worker_info() is not None and index >= 8:
            time.sleep(600)
        return super().__getitem__(index)


def test_ctrl_c_ends_workers_that_are_at_a_batch(loaders: Any) -> None:
    loader = loaders(Endless(), 8, executor="processes", workers=2, shuffle=False)
    next(iter(loader))
    for worker in worker_processes():
        for _ in range(60):  # before it is at a batch that lasts, it goes on
            if worker.is_alive():
                os.kill(worker.pid, signal.SIGINT)
                worker.join(1)
        assert worker.exitcode is not None


@pytest.mark.parametrize(("kind", "workers"), WAYS)
def test_several_iterations_at_once_have_each_their_own_batches(
    loaders: Any, kind: str, workers: int
) -> None:
    plain = loaders(Numbers(), 8, executor="none")
    wanted = [ids(plain) for _ in range(3)]
    loader = loaders(Numbers(), 8, executor=kind, workers=workers)
    each: list[list[int]] = [[], [], []]
    for one, other in zip(loader, loader, strict=True):
        each[0] += one["id"].tolist()
        each[1] += other["id"].tolist()
    assert each[:2] == wanted[:2]
    loader.set_epoch(0)
    each[0] = []
    for batch in loader:
        each[0] += batch["id"].tolist()
        if len(each[0]) == 24:
            each[1] = ids(loader)
    assert each[:2] == wanted[:2]


@pytest.mark.parametrize(("kind", "workers"), WAYS)
def test_closed_in_mid_epoch_it_goes_on_with_other_workers(
    loaders: Any, kind: str, workers: int
) -> None:
    wanted = ids(loaders(Numbers(), 8, executor="none"))
    loader, found = loaders(Numbers(), 8, executor=kind, workers=workers), list[int]()
    for batch in loader:
        found += batch["id"].tolist()
        if len(found) == 24:
            loader.close()
    assert found == wanted


@pytest.mark.parametrize(("kind", "workers"), WAYS)
def test_a_fork_draws_by_workers_of_its_own(loaders: Any, kind: str, workers: int) -> None:
    loader = loaders(
        Wide() if kind == "processes" else Numbers(), 8, executor=kind, workers=workers
    )
    wanted = [digest(loader), digest(loader)]
    loader.set_epoch(0)
    batches = iter(loader)
    first = next(batches)
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def again() -> None:
        loader.set_epoch(0)
        theirs.send([digest(loader), digest(loader)])
        loader.close()

    child = multiprocessing.get_context("fork").Process(target=again)
    child.start()
    try:
        assert ours.poll(60), "the fork hangs"
        assert ours.recv() == wanted
    finally:
        child.kill()
        child.join()
    assert digest(itertools.chain([first], batches)) == wanted[0]
    assert digest(loader) == wanted[1]


def test_where_the_system_gives_no_more_threads_as_many_go_on(
    loaders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = loaders(Numbers(), 8, executor="threads", workers=1)
    wanted = digest(loaders(Numbers(), 8, executor="none"))
    batches = iter(loader)
    first = next(batches)
    loader._climb = Climb(1, 4, 2)
    monkeypatch.setattr(loader._climb, "told", lambda *args: 2)
    monkeypatch.setattr(threading.Thread, "start", none_left)
    assert digest(itertools.chain([first], batches)) == wanted
    assert loader.notes == ["the system gives no more threads: 1 are kept"]


def none_left(thread: Any) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("workers", ["auto", 2])
@pytest.mark.parametrize("source", [Numbers(), Global()], ids=["own", "global"])
def test_a_daemonic_process_has_a_loader_too(source: Any, workers: Any) -> None:
    """One of a `multiprocessing.Pool`, say: it may have no processes of its own."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        found = pool.apply(digest_of, (source, workers))
    assert found == digest_of(source, 0)


def digest_of(source: Any, workers: Any) -> str:
    loader = Loader(source, 8, workers=workers)
    try:
        return digest(loader)
    finally:
        loader.close()


def test_ranks_of_a_machine_share_its_cores_and_memory(
    loaders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = {}

    def chosen(*args: Any, **how: Any) -> Choice:
        told.update(how)
        return Choice("none", 0, 1, "", 0.0)

    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setattr("outpace.measure.machine.usable_cores", lambda: 8)
    monkeypatch.setattr(loader_module, "free_memory", lambda: 64 << 20)
    monkeypatch.setattr(loader_module, "choose", chosen)
    next(iter(loaders(Numbers(), 8)))
    assert (told["cores"], told["ram"]) == (2, 4 << 20)


def test_what_is_made_ahead_does_not_count(loaders: Any) -> None:
    for kind, workers in WAYS:
        loader = loaders(Numbers(), 8, executor=kind, workers=workers)
        iterator = iter(loader)
        next(iterator)
        next(iterator)
        assert loader.state_dict()["consumed"] == 16
        del iterator


def test_left_early_the_next_epoch_begins(loaders: Any) -> None:
    for kind, workers in (("none", 0), ("threads", 2), ("processes", 2)):
        loader = loaders(Numbers(), 8, executor=kind, workers=workers)
        for _ in loader:
            break
        assert sorted(ids(loader)) == list(range(SIZE))
        assert loader.epoch == 2


def test_a_state_of_other_data_is_refused(loaders: Any) -> None:
    state = loaders(Numbers(), executor="none").state_dict()
    with pytest.raises(DataError, match="samples 103, this one has 50"):
        loaders(Numbers(50), executor="none").load_state_dict(state)
    with pytest.raises(DataError, match="seed"):
        loaders(Numbers(), executor="none", seed=9).load_state_dict(state)


@pytest.mark.parametrize(("kind", "workers"), WAYS)
def test_a_bad_sample_is_named(loaders: Any, kind: str, workers: int) -> None:
    loader = loaders(Numbers(bad=(61,)), 8, executor=kind, workers=workers, shuffle=False)
    with pytest.raises(
        DataError, match=r"numbers/61.bin \(sample 61\): OSError: cannot read"
    ) as told:
        digest(loader)
    assert "skip" in str(told.value.hint)
    assert "__getitem__" in "".join(told.value.__notes__)


@pytest.mark.parametrize(("kind", "workers"), WAYS)
def test_bad_samples_are_skipped_and_counted(loaders: Any, kind: str, workers: int) -> None:
    bad = (3, 61, 62)
    loader = loaders(Numbers(bad=bad), 8, executor=kind, workers=workers, on_error="skip")
    assert sorted(ids(loader)) == sorted(set(range(SIZE)) - set(bad))
    assert sorted(s.sample for s in loader.skipped) == list(bad)
    assert {s.where for s in loader.skipped} == {f"numbers/{i}.bin" for i in bad}
    (note,) = (note for note in loader.notes if "left out" in note)
    assert note.startswith("epoch 0: 3 samples left out, the first numbers/")


def test_a_batch_of_nothing_but_bad_samples_is_an_error(loaders: Any) -> None:
    loader = loaders(
        Numbers(bad=tuple(range(20, 60))), 8, executor="none", on_error="skip", shuffle=False
    )
    with pytest.raises(OutpaceError, match="none of the 8 samples"):
        digest(loader)


def test_a_tensor_set_is_cut_in_one_piece(loaders: Any) -> None:
    rows = torch.arange(1000.0)[:, None]
    loader = loaders(TensorDataset(rows, rows[:, 0]), 100, executor="none")
    x, y = next(iter(loader))
    assert loader.maker.slices
    assert x.shape == (100, 1)
    assert torch.equal(x[:, 0], y)


def test_packed_pairs_are_pairs(loaders: Any, tmp_path: Any) -> None:
    from outpace.serve.pack import pack

    rows = torch.arange(50.0)[:, None].expand(50, 3).contiguous()
    pack_me = ModuleType("pack_me")
    pack_me.rows = TensorDataset(rows, rows[:, 0])  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pack_me", pack_me)
        pack("pack_me:rows", tmp_path / "rows")
    loader = loaders(tmp_path / "rows", 10, executor="none")
    for x, y in loader:
        assert x.shape == (10, 3)
        assert torch.equal(x[:, 0], y)
    assert loader.maker.whole


def test_after_is_last_of_all(loaders: Any) -> None:
    for kind, workers in WAYS:
        loader = loaders(
            Numbers(), 8, executor=kind, workers=workers, shuffle=False, device=None,
            after=lambda b: {**b, "x": b["x"] / 2},
        )  # fmt: skip
        first = next(iter(loader))
        assert first["x"][3].tolist() == [1.5] * 4


def test_after_is_there_again_after_a_pause(loaders: Any) -> None:
    for kind, workers in WAYS:
        loader = loaders(
            Numbers(), 8, executor=kind, workers=workers, shuffle=False,
            after=lambda b: {**b, "x": b["x"] / 2},
        )  # fmt: skip
        for _ in range(2):
            assert next(iter(loader))["x"][3].tolist() == [1.5] * 4
            loader.close()


def test_the_choice_says_why(loaders: Any) -> None:
    loader = loaders(Numbers(), 8)
    digest(loader)
    assert loader.choice is not None
    assert "batches a second" in loader.choice.reason


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"batch_size": 0}, "a batch of 0"),
        ({"batch_size": None}, "batch_size is None"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"on_error": "ignore"}, "'ignore'"),
        ({"rank": 2, "world": 2}, "rank 2 of 2"),
        ({"executor": "thread"}, "executor is 'thread'"),
        ({"workers": -1}, "workers is -1"),
        ({"workers": "two"}, "workers is 'two'"),
    ],
)
def test_settings_that_cannot_be(kwargs: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        Loader(Numbers(), **kwargs)


def test_a_small_shared_memory_is_gone_around(loaders: Any, monkeypatch: Any) -> None:
    for module in ("processes", "loader"):
        monkeypatch.setattr(f"outpace.serve.{module}.shared_free", lambda: 100)
    want = digest(loaders(Numbers(), 8, executor="none"))
    loader = loaders(Numbers(), 8, executor="processes", workers=2)
    assert digest(loader) == want
    assert "copied through pipes" in loader.notes[0]


@pytest.mark.parametrize(("kind", "workers"), WAYS)
def test_after_and_pinning_are_done_in_the_trainings_own_process(
    loaders: Any, monkeypatch: Any, kind: Any, workers: int
) -> None:
    """CUDA does not bear to be used after a fork."""
    own, pinned = os.getpid(), []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        if os.getpid() != own:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        pinned.append(tensor)
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    maker = loaders(Numbers(), 8).maker
    arrival = Arrival(lambda batch: {**batch, "pid": os.getpid()}, pin=True)
    executor = start(kind, maker, workers, 2, 1000, arrival)
    try:
        requests = [Request(0, np.arange(first, first + 8)) for first in (0, 8, 16)]
        made = list(executor.made(requests))
    finally:
        executor.close()
    assert [one.error for one in made] == [None] * 3
    assert {one.batch["pid"] for one in made} == {own}
    assert ids(one.batch for one in made) == list(range(24))
    # In the thread of a DataLoader's own where it comes from a process, if there is a GPU.
    assert len(pinned) == (0 if kind == "processes" else 6)


def test_threads_do_beside_the_step_what_follows(loaders: Any) -> None:
    def after(batch: Any) -> Any:
        return {**batch, "thread": threading.current_thread()}

    for kind, beside in (("none", False), ("threads", True)):
        loader = loaders(Numbers(), 8, executor=kind, workers=1, after=after)
        drawn = {batch["thread"] is threading.main_thread() for batch in loader}
        assert drawn == {not beside}


@pytest.mark.parametrize(("kind", "workers"), WAYS)
def test_what_follows_and_fails_is_told(loaders: Any, kind: str, workers: int) -> None:
    loader = loaders(
        Numbers(), 8, executor=kind, workers=workers, after=lambda batch: batch["nothing"]
    )
    with pytest.raises(DataError, match="after: KeyError: 'nothing'"):
        digest(loader)


def test_each_tensor_that_comes_from_a_process_has_memory_of_its_own(loaders: Any) -> None:
    for batch in loaders(Numbers(), 8, executor="processes", workers=1):
        for tensor in batch.values():
            assert tensor.untyped_storage().nbytes() == tensor.nbytes


LARGE = """
import numpy as np
from outpace.serve.loader import Loader
class Large:
    def __len__(self): return 60
    def __getitem__(self, index): return np.full(3 << 20, index, np.uint8)
loader = Loader(Large(), 10, executor="processes", workers=4, shuffle=False)
assert [int(row[-1]) for batch in loader for row in batch] == list(range(60))
loader.close()
print(loader.notes)
"""


GROWING = """
import numpy as np
from outpace.serve.loader import Loader
class Growing:
    def __len__(self): return 40
    def __getitem__(self, index): return np.full((1 + 9 * (index > 17)) << 20, index, np.uint8)
for after in (None, lambda batch: batch):
    loader = Loader(Growing(), 1, executor="processes", workers=4, shuffle=False, after=after)
    loader._arrival = loader._arrival._replace(pin=after is not None)
    assert [int(row[-1]) for batch in loader for row in batch] == list(range(40))
    loader.close()
print(loader.notes)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("large", "told"), [(LARGE, "copied through pipes"), (GROWING, "[]")])
def test_64_mib_of_shared_memory_are_enough_for_large_batches(large: str, told: str) -> None:
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"]).returncode:
        pytest.skip("no mount namespace can be made here")
    small = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$0" -c "$1"'
    command = ["unshare", "-rm", "sh", "-c", small, sys.executable, large]
    found = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert found.returncode == 0, found.stderr
    assert told in found.stdout


class Frozen(Numbers):
    """Tells how many objects a collection leaves alone."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": index, "x": np.array([gc.get_freeze_count()])}


def test_collections_in_a_worker_leave_what_it_shares_alone(loaders: Any) -> None:
    for batch in loaders(Frozen(16), 8, executor="processes", workers=2):
        assert batch["x"].min() > 10_000  # torch alone brings more
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize(("kind", "workers"), WAYS)
def test_a_loader_and_its_workers_end_with_its_last_user(kind: Any, workers: int) -> None:
    gc.collect()
    gc.disable()
    try:
        others = {child.pid for child in psutil.Process().children()}
        threads = threading.active_count()
        loader = Loader(Numbers(), 8, executor=kind, workers=workers)
        batches = iter(loader)
        next(batches)
        batches.close()
        ended = weakref.ref(loader)
        del batches, loader
        assert ended() is None
        until = time.monotonic() + 20
        while {child.pid for child in psutil.Process().children()} - others:
            assert time.monotonic() < until
            time.sleep(0.05)
        while threading.active_count() > threads:
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        gc.enable()


def test_workers_are_chosen_again_once_that_is_little_to_what_was_waited(
    loaders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[float] = []

    def chosen(*args: Any, saved_s: float, **kwargs: Any) -> Choice:
        saved.append(saved_s)
        return Choice("none", 0, 1, "", 1.0, again_s=0.0 if len(saved) > 1 else 0.25)

    monkeypatch.setattr(loader_module, "choose", chosen)
    loader = loaders(Numbers(), 8)
    for waited_s, choices in ((0.0, 1), (4.0, 1), (6.0, 2), (100.0, 2)):
        loader._waited_s = waited_s
        list(loader)
        assert len(saved) == choices
    assert saved == [0.0, pytest.approx(0.05 * 6, rel=0.2)]


class Indexed(Numbers):
    """Opens its file when it has no offsets yet, and then reads them."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        np.arange(SIZE, dtype=np.int32).tofile(path)
        self.path, self.file, self.offsets = path, None, None

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.offsets is None:
            self.file: Any = self.path.open("rb", buffering=0)
            self.offsets: Any = np.arange(SIZE) * 4
        self.file.seek(int(self.offsets[index]))
        return {"id": index, "x": np.frombuffer(self.file.read(4), np.int32)}


@pytest.mark.parametrize(("kind", "workers"), [("none", 0), ("processes", 2), ("auto", "auto")])
def test_what_tells_that_a_file_is_open_goes_with_it(
    loaders: Any, tmp_path: Path, kind: str, workers: Any
) -> None:
    loader = loaders(Indexed(tmp_path / "n"), 8, executor=kind, workers=workers)
    assert sorted(ids(loader)) == list(range(SIZE))


def test_ranks_that_meet_later_share_the_epochs(
    loaders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader, alone = loaders(Numbers(), 8, executor="none"), loaders(Numbers(), 8, rank=0, world=1)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    assert len(ids(loader)) == 52
    assert len(ids(alone)) == SIZE


@pytest.mark.parametrize(("kind", "workers"), WAYS)
def test_a_data_set_that_grows_or_shrinks_is_drawn_whole(
    loaders: Any, kind: str, workers: int
) -> None:
    data = list(range(20))
    loader = loaders(data, 8, executor=kind, workers=workers)
    assert sorted(i for batch in loader for i in batch.tolist()) == data
    data += range(20, 30)
    assert sorted(i for batch in loader for i in batch.tolist()) == data
    del data[12:]
    assert sorted(i for batch in loader for i in batch.tolist()) == data


def test_a_data_set_that_grows_wants_to_be_repeated_anew(loaders: Any) -> None:
    data = list(range(20))
    loader = loaders(data, 8, executor="none")
    loader.repeat([1.0] * 20)
    list(loader)
    data.append(20)
    with pytest.raises(UsageError, match=r"21 samples, repeat\(\) was given 20 factors"):
        list(loader)


def test_an_iteration_within_another_loses_nothing(loaders: Any) -> None:
    loader = loaders(Numbers(), 8, executor="none")
    for number, _ in enumerate(loader):
        if number == 2:
            assert len(ids(loader)) == SIZE
        if number == 3:
            state = loader.state_dict()
            assert (state["epoch"], state["consumed"]) == (0, 32)
            break
    assert len(ids(loader)) == SIZE


def test_an_epoch_that_is_set_within_another_is_the_next(loaders: Any) -> None:
    for last in (2, SIZE):
        loader = loaders(Numbers(), 8, executor="none")
        for number, _ in enumerate(loader):
            if number == 1:
                loader.set_epoch(5)
            if number == last:
                break
        assert loader.epoch == 5
        assert len(ids(loader)) == SIZE


def test_processes_are_refused_in_a_daemonic_process_in_words() -> None:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        told = pool.apply(refused_of, (Numbers(),))
    assert "a daemonic process, as one of a multiprocessing.Pool" in told


def refused_of(source: Any) -> str:
    loader = Loader(source, 8, executor="processes", workers=2)
    try:
        next(iter(loader))
    except UsageError as error:
        return error.message
    finally:
        loader.close()
    return "nothing"


@pytest.mark.parametrize("executor", ["auto", "none", "threads"])
def test_what_is_chosen_draws_none_of_the_trainings_numbers(loaders: Any, executor: str) -> None:
    """However often it is tried: a faster machine tries more."""

    def mixed(batch: Any) -> Any:
        return {**batch, "x": batch["x"] * torch.rand(())}

    torch.manual_seed(3)
    loader = loaders(Numbers(), 8, executor=executor, after=mixed)
    before = torch.get_rng_state()
    batches = iter(loader)
    if executor != "threads":  # which draws as it goes
        first = next(batches)["x"]
        torch.set_rng_state(before)
        again = next(iter(loaders(Numbers(), 8, executor="none", after=mixed)))["x"]
        assert torch.equal(first, again)
    batches.close()
