from __future__ import annotations

import gc
from typing import Any

import numpy as np
import torch

from outpace.serve.crossing import SMALL
from outpace.serve.executors import Processes
from outpace.serve.loader import Loader
from outpace.serve.slots import Slots

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


def slots_of(made: Loader) -> Slots:
    executor = made._executor
    assert isinstance(executor, Processes)
    assert executor.slots is not None
    return executor.slots


def test_places_come_back_when_nothing_looks_at_them() -> None:
    slots = Slots(2, 100)
    assert [slots.take(), slots.take(), slots.take()] == [0, 1, None]
    first, second, third = (slots.arrived() for _ in range(3))
    assert third is None
    assert first is not None
    view = torch.from_numpy(np.ndarray((3,), np.uint8, first, 1))
    del first, second
    assert list(slots.free) == [1]
    view[:] = 7
    assert slots.memory[0, :5].tolist()[1:4] == [7, 7, 7]
    del view
    assert sorted(slots.free) == [0, 1]


def test_what_never_arrives_is_free_again() -> None:
    slots = Slots(3, 100)
    numbers = [slots.take() for _ in range(3)]
    kept = slots.arrived()
    slots.none_coming()
    assert list(slots.free) == numbers[1:]
    del kept
    assert sorted(slots.free) == [0, 1, 2]


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
    made = loader()
    try:
        places = {batch["x"].data_ptr() for batch in made}
        slots = slots_of(made)
        memory = slots.memory
        first, last = memory.data_ptr(), memory.data_ptr() + memory.numel()
        assert len(places) <= len(memory)
        assert all(first <= place < last for place in places)
        gc.collect()
        assert sorted(slots.free) == list(range(len(memory)))
    finally:
        made.close()


def test_an_epoch_that_is_left_early_takes_no_places_with_it() -> None:
    made = loader()
    try:
        for _ in range(3):
            batches = iter(made)
            kept = next(batches)
            del batches
        seen = [int(i) for batch in made for i in batch["id"]]
        assert sorted(seen) == list(range(50))
        slots = slots_of(made)
        assert len(slots.free) == len(slots.memory) - 1  # `kept` is in one
        assert torch.equal(kept["x"][:, 0], kept["id"].float())
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
