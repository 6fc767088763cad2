from __future__ import annotations

import gc
import multiprocessing
import os
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate, get_worker_info

from outpace.serve import heirs
from outpace.serve.crossing import SMALL
from outpace.serve.heirs import Heirs
from outpace.serve.loader import Loader
from outpace.serve.places import Places
from outpace.serve.processes import Processes

WIDE = SMALL
"""numbers of a sample: four bytes each"""


class Wide:
    """Samples that make large batches."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.full(WIDE, index, np.float32), "id": index}


def loader(**how: Any) -> Loader:
    return Loader(Wide(), 2, executor="processes", workers=2, **how)


def places_of(made: Loader) -> Places:
    executor = made._executor
    assert isinstance(executor, Processes)
    assert executor.places is not None
    return executor.places


def test_places_come_back_when_nothing_looks_at_them() -> None:
    places = Places(1, 2, 100)
    assert [places.take(), places.take(), places.take()] == [0, 1, None]
    first = places.lend(0)
    view = torch.from_numpy(np.ndarray((3,), np.uint8, first, 1))
    places.lend(1)
    assert places.used.tolist() == [1, 0]
    del first
    view[:] = 7
    assert places.memory[0, :5].tolist()[1:4] == [7, 7, 7]
    assert places.used.tolist() == [1, 0]
    del view
    assert places.used.tolist() == [0, 0]


def test_what_never_arrives_is_free_again() -> None:
    places = Places(1, 3, 100)
    for _ in range(3):
        places.take()
    kept = places.lend(0)
    places.none_coming()
    assert places.used.tolist() == [1, 0, 0]
    del kept
    assert places.used.tolist() == [0, 0, 0]


def test_what_a_fork_lets_go_is_still_its_parents() -> None:
    places = Places(1, 1, 100)
    places.take()
    kept = [places.lend(0)]

    def let_go() -> None:
        kept.clear()
        gc.collect()

    child = multiprocessing.get_context("fork").Process(target=let_go)
    child.start()
    child.join()
    assert child.exitcode == 0
    assert places.used.tolist() == [1]
    kept.clear()
    assert places.used.tolist() == [0]


def test_what_a_fork_has_is_not_written_to_as_long_as_it_is_there() -> None:
    """A process that logs a batch, say, which the training has let go."""
    made = loader(epochs=1)
    context = multiprocessing.get_context("fork")
    may_look, seen = context.Event(), context.SimpleQueue()
    batches = iter(made)
    batch = next(batches)
    number = float(batch["id"][0])

    def look(batch: Any) -> None:
        may_look.wait(60)
        seen.put(sorted({*batch["x"][0].tolist()}))

    child = context.Process(target=look, args=(batch,))
    child.start()
    try:
        del batch
        assert sum(1 for _ in batches) == len(made) - 1
        may_look.set()
        assert seen.get() == [number]
        child.join()
        assert places_of(made).used.sum() == 1
        list(made)
        assert not places_of(made).used.any()
    finally:
        child.kill()
        made.close()


def test_batches_that_are_kept_stay_as_they_were() -> None:
    made = loader()
    try:
        kept = [batch for _ in range(2) for batch in made]
        assert len({batch["x"].data_ptr() for batch in kept}) == len(kept)
        for batch in kept:
            assert torch.equal(batch["x"][:, 0], batch["id"].float())
            assert torch.equal(batch["x"][:, -1], batch["id"].float())
    finally:
        made.close()


def test_a_place_is_written_to_again_and_all_come_back() -> None:
    made = loader(epochs=1)
    try:
        seen = {batch["x"].data_ptr() for batch in made}
        places = places_of(made)
        first = places.memory.data_ptr()
        assert len(seen) <= len(places.used) < len(made)
        assert all(first <= place < first + places.memory.numel() for place in seen)
        assert not places.used.any()
    finally:
        made.close()


def test_an_epoch_that_is_left_early_takes_no_places_with_it() -> None:
    made = loader(epochs=4)
    try:
        for _ in range(3):
            batches = iter(made)
            kept = next(batches)
            del batches
        seen = [int(i) for batch in made for i in batch["id"]]
        assert sorted(seen) == list(range(50))
        assert places_of(made).used.sum() == 1  # `kept` is in one
        assert torch.equal(kept["x"][:, 0], kept["id"].float())
    finally:
        made.close()


def test_a_workers_own_collation_takes_no_shared_memory() -> None:
    """Else each batch would have fresh pages before it is copied."""

    def shared(samples: list[Any]) -> Any:
        batch = default_collate(samples)
        return {**batch, "inside": get_worker_info() is not None, "shared": batch["x"].is_shared()}

    made = loader(collate=shared)
    try:
        assert all(batch["inside"] and not batch["shared"] for batch in made)
    finally:
        made.close()


class Growing(Wide):
    """Later samples are larger than a place."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.full(WIDE * (1 + index // 10), index, np.float32), "id": index}


def test_a_batch_that_is_too_large_for_a_place_has_memory_of_its_own() -> None:
    made = Loader(Growing(), 2, executor="processes", workers=1, shuffle=False)
    try:
        for batch in made:
            assert batch["x"].shape[1] == WIDE * (1 + int(batch["id"][0]) // 10)
            assert torch.equal(batch["x"][:, -1], batch["id"].float())
    finally:
        made.close()


def test_what_forks_had_is_given_back_once_whoever_looks_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread, or a collection, comes between the look at a process's end and what follows."""
    found = Heirs({7})
    ends = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
    found.inherited.update(zip(ends, ({3, 7}, {4}), strict=True))
    within: list[int] = []
    looked = 0

    def at_end(end: int) -> bool:
        nonlocal looked
        looked += 1
        if looked == 1:
            within.extend(found.given_back())
        return True

    monkeypatch.setattr(heirs, "_at_end", at_end)
    assert found.given_back() == []
    assert sorted(within) == [3, 4], "7 is lent still"
    assert not found.inherited
