from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outpace.serve import loader as loader_module
from outpace.serve.coming import crosses
from outpace.serve.crops import RandomCrop
from outpace.serve.executors import Here, Threads
from outpace.serve.loader import Loader
from outpace.serve.making import BatchMaker
from outpace.serve.rates import AHEAD
from outpace.serve.records import Records

SIZE, BATCH = 103, 8
BATCHES = -(-SIZE // BATCH)
KINDS = [("threads", 1), ("threads", 3), ("processes", 1), ("processes", 2)]
SEVERAL = [pytest.param(*one, marks=[pytest.mark.slow] * (one[1] == 1)) for one in KINDS]
"""those of one thread or process are marked slow"""


class Told:
    """Adds a byte to a file for each sample that is made, in whatever process."""

    def __init__(self, path: Path) -> None:
        self.path, self.scale = path, 1

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> dict[str, Any]:
        with self.path.open("ab") as file:
            file.write(b".")
        return {"id": index, "x": self.scale * index}


def noisy(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**sample, "x": sample["x"] + rng.random()}


@pytest.fixture
def make(tmp_path: Path, monkeypatch: Any) -> Any:
    """Loaders over `Told` whose threads may cross as well, and how many samples were made."""
    monkeypatch.setattr(loader_module, "crosses", lambda *_: True)
    made: list[Loader] = []

    def loader(**how: Any) -> tuple[Loader, Callable[[], int]]:
        path = tmp_path / f"made-{len(made)}"
        made.append(Loader(Told(path), BATCH, transform=noisy, **how))
        return made[-1], lambda: path.stat().st_size

    yield loader
    for each in made:
        each.close()


def epoch(loader: Loader) -> list[tuple[list[int], list[float]]]:
    return [(batch["id"].tolist(), batch["x"].tolist()) for batch in loader]


def at_rest(count: Callable[[], int]) -> int:
    """The count once it has not moved for a while."""
    before = -1
    while before != count():
        before = count()
        time.sleep(0.3)
    return before


@pytest.mark.parametrize(("kind", "workers"), SEVERAL)
def test_the_next_epoch_is_begun_in_this_one_and_is_the_same(
    make: Any, kind: str, workers: int
) -> None:
    alone, _ = make(executor="none")
    wanted = [epoch(alone) for _ in range(4)]
    single, single_made = make(executor=kind, workers=workers, epochs=1)
    assert epoch(single) == wanted[0]
    one = at_rest(single_made)
    loader, made = make(executor=kind, workers=workers)
    assert epoch(loader) == wanted[0]
    assert one < at_rest(made) <= one + AHEAD * BATCH
    assert [epoch(loader) for _ in range(3)] == wanted[1:]
    assert at_rest(made) <= one + 3 * SIZE + AHEAD * BATCH, "what was begun was made again"


@pytest.mark.parametrize(("kind", "workers"), SEVERAL)
def test_nothing_is_begun_beyond_the_last_epoch(make: Any, kind: str, workers: int) -> None:
    loader, made = make(executor=kind, workers=workers, epochs=2)
    epoch(loader)
    epoch(loader)
    two = at_rest(made)
    single, single_made = make(executor=kind, workers=workers, epochs=1)
    epoch(single)
    assert two == at_rest(single_made) + SIZE


def changed_batch(loader: Loader) -> None:
    loader.resize(20)


def changed_order(loader: Loader) -> None:
    loader.repeat([2.0] + [0.5] * (SIZE - 1))


def gone_back(loader: Loader) -> None:
    loader.set_epoch(0)


def gone_on(loader: Loader) -> None:
    loader.load_state_dict(loader.state_dict() | {"epoch": 3, "consumed": 40})


def other_ranks(loader: Loader) -> None:
    loader.rank, loader.world = 1, 2


def closed(loader: Loader) -> None:
    loader.close()


@pytest.mark.parametrize(("kind", "workers"), [("threads", 2), ("processes", 2)])
@pytest.mark.parametrize(
    "change", [changed_batch, changed_order, gone_back, gone_on, other_ranks, closed]
)
def test_what_is_set_between_epochs_holds_from_the_first_batch_on(
    make: Any, change: Callable[[Loader], None], kind: str, workers: int
) -> None:
    alone, _ = make(executor="none")
    loader, _ = make(executor=kind, workers=workers)
    for each in (alone, loader):
        epoch(each)
        change(each)
    assert epoch(loader) == epoch(alone)
    assert loader.state_dict() == alone.state_dict()


@pytest.mark.parametrize(("kind", "workers"), KINDS)
def test_a_data_set_that_is_changed_between_epochs_is_looked_at_anew(
    make: Any, kind: str, workers: int
) -> None:
    loader, _ = make(executor=kind, workers=workers)
    for scale in (100, 1000):
        epoch(loader)
        loader.source.scale = scale
        for ids, values in epoch(loader):
            assert [int(x) // scale for x in values] == ids


def test_an_epoch_that_is_left_early_is_not_gone_on_with(make: Any) -> None:
    alone, _ = make(executor="none")
    epoch(alone)
    wanted = epoch(alone)
    for kind, workers in KINDS:
        loader, _ = make(executor=kind, workers=workers)
        for number, _ in enumerate(loader):
            if number == BATCHES - 2:  # the next epoch is begun
                break
        assert epoch(loader) == wanted


@pytest.mark.parametrize(("kind", "workers"), KINDS)
def test_what_was_begun_in_inference_mode_is_not_trained_on(
    make: Any, kind: str, workers: int
) -> None:
    """Its tensors cannot be saved for a backward pass."""
    loader, _ = make(executor=kind, workers=workers)
    with torch.inference_mode():
        epoch(loader)
    assert not any(batch["x"].is_inference() for batch in loader)


def test_threads_cross_only_where_nothing_of_the_script_is_called(tmp_path: Path) -> None:
    ours = object.__new__(Records)
    crop = RandomCrop(8)

    def maker(source: Any, **how: Any) -> BatchMaker:
        return BatchMaker(source, seed=0, **how)

    threads = Threads(maker(ours), 1, 2)
    try:
        assert crosses(threads, maker(ours, transform=crop), None)
        assert not crosses(threads, maker(ours, transform=noisy), None)
        assert not crosses(threads, maker(ours, prepare=len), None)
        assert not crosses(threads, maker(ours, collate=list), None)
        assert not crosses(threads, maker(ours), noisy)
        assert not crosses(threads, maker(Told(tmp_path)), None)
        assert not crosses(Here(maker(ours)), maker(ours), None)
    finally:
        threads.close()


@pytest.mark.parametrize(
    ("samples", "sizes"), [(8, [4]), (9, [4]), (10, [4]), (11, [4, 2]), (12, [4, 2])]
)
def test_a_batch_of_a_single_sample_on_each_rank_is_left_out(
    samples: int, sizes: list[int]
) -> None:
    for rank in range(2):
        loader = Loader(list(range(samples)), 4, rank=rank, world=2, executor="none")
        loader.drop_single = True
        assert [len(batch) for batch in loader] == sizes
        assert len(loader) == len(sizes)
