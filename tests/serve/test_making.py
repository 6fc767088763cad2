from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from outpace.errors import DataError, UsageError
from outpace.serve.loader import Loader
from outpace.serve.making import BatchMaker, Made, OnError, Request, takes_two


class Store:
    """Gives batches whole; some samples cannot be read, and some not together."""

    gives_batches = True

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": index}

    def batch(self, indices: Any) -> dict[str, Any]:
        if {5, 7} & set(indices.tolist()):
            raise DataError("a block is damaged", "pack it anew")
        if {20, 21} <= set(indices.tolist()):
            raise ValueError("unlike")
        return {"id": np.asarray(indices)}

    def where(self, index: int) -> str:
        return f"store: sample {index}"


def made(on_error: OnError, *indices: int) -> Made:
    return BatchMaker(Store(), seed=0, on_error=on_error)(Request(0, np.array(indices)))


def test_of_a_batch_that_comes_whole_the_bad_sample_is_named() -> None:
    error = made("raise", 1, 2, 5, 3).error
    assert error is not None
    assert error.message == "store: sample 5: a block is damaged"
    assert error.hint == "pack it anew; on_error='skip' leaves such samples out and counts them"


def test_of_a_batch_that_comes_whole_bad_samples_are_skipped() -> None:
    found = made("skip", 1, 5, 2, 7)
    assert found.batch["id"].tolist() == [1, 2]
    assert [tuple(one) for one in found.skipped] == [
        (5, "store: sample 5", "a block is damaged"),
        (7, "store: sample 7", "a block is damaged"),
    ]
    nothing = made("skip", 5, 7)
    assert nothing.error is not None
    assert nothing.error.message == "none of the 2 samples of a batch could be read"
    assert len(nothing.skipped) == 2


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_what_makes_no_batch_only_together_is_told_so(on_error: OnError) -> None:
    error = made(on_error, 20, 1, 21).error
    assert error is not None
    assert error.message == "samples make no batch: ValueError: unlike"


class Batching:
    """Has a method of that name which does something else, as data sets of `datasets` do."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> int:
        return index

    def batch(self, batch_size: int) -> list[list[int]]:
        raise AssertionError

    def where(self, condition: Any, other: Any) -> Any:
        raise AssertionError


@pytest.mark.parametrize("source", [Batching(), torch.arange(50)], ids=["set", "tensor"])
def test_methods_of_the_same_name_are_not_taken_for_ours(source: Any) -> None:
    request = Request(0, np.array([3, 1]))
    assert BatchMaker(source, seed=0)(request).batch.tolist() == [3, 1]
    error = BatchMaker(source, seed=0, transform=lambda sample: 1 / (sample - 1).nothing)
    found = error(request).error
    assert found is not None
    assert found.message.startswith("sample 3: AttributeError")


class Together:
    """Samples that are drawn several at once; one of them cannot be read."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> int:
        self.asked.append(index)
        if index == 7:
            raise OSError("gone")
        return index

    def __getitems__(self, indices: list[int]) -> list[int]:
        self.asked.append(indices)
        if 7 in indices:
            raise OSError("one is gone")
        return indices


def test_samples_that_can_be_are_drawn_at_once() -> None:
    source = Together()
    maker = BatchMaker(
        source,
        seed=0,
        prepare=lambda sample: 10 * sample,
        transform=lambda sample, rng: sample + rng.random(),
        on_error="skip",
    )
    by_one = BatchMaker(range(50), seed=0, prepare=maker.prepare, transform=maker.transform)
    request = Request(2, np.array([3, 1, 4]))
    assert maker(request).batch.tolist() == by_one(request).batch.tolist()
    assert source.asked == [[3, 1, 4]]
    found = maker(Request(2, np.array([3, 7, 4])))
    assert [tuple(one) for one in found.skipped] == [(7, "sample 7", "OSError: gone")]
    assert found.batch.tolist() == by_one(Request(2, np.array([3, 4]))).batch.tolist()


class Ready(Together):
    """Gives a batch that is ready."""

    def __init__(self) -> None:
        super().__init__()
        self.x = torch.arange(50)

    def __getitems__(self, indices: list[int]) -> Any:
        return self.x[indices], -self.x[indices]


@pytest.mark.parametrize("count", [2, 3])
def test_what_is_drawn_at_once_is_collates_to_know(count: int) -> None:
    """Two tensors were taken for two samples, and of three single samples were drawn."""
    indices = list(range(count))
    loader = DataLoader(Ready(), batch_size=count, collate_fn=lambda batch: batch)
    wanted = next(iter(loader))
    found = BatchMaker(Ready(), seed=0, collate=lambda batch: batch)(Request(0, np.array(indices)))
    assert [part.tolist() for part in found.batch] == [part.tolist() for part in wanted]
    prepared = BatchMaker(Ready(), seed=0, prepare=lambda sample: 10 * sample)
    assert prepared(Request(0, np.array(indices))).batch.tolist() == [10 * i for i in indices]


class Wrapped:
    """Hands on what it does not have itself to a store of ours."""

    def __init__(self) -> None:
        self.inner = Whole()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> int:
        return -index


class Whole(Batching):
    gives_batches = True

    def batch(self, indices: Any) -> Any:
        return torch.as_tensor(indices)


def test_a_wrapper_of_a_store_is_asked_itself() -> None:
    request = Request(0, np.array([3, 1]))
    assert BatchMaker(Whole(), seed=0)(request).batch.tolist() == [3, 1]
    assert BatchMaker(Wrapped(), seed=0)(request).batch.tolist() == [-3, -1]


def test_a_shelf_that_another_thread_takes_away_is_missed_by_no_one() -> None:
    class Vanishing:
        def get(self, index: int) -> None:
            maker.shelf = None

        def put(self, index: int, sample: Any) -> bool:
            return False

    maker = BatchMaker(range(50), seed=0)
    maker.shelf = Vanishing()  # type: ignore[assignment]
    found = maker(Request(0, np.array([3, 1])))
    assert found.error is None
    assert found.batch.tolist() == [3, 1]


class Rows:
    """One is longer than all others."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> Any:
        return np.zeros(3 if index == 7 else 2)

    def where(self, index: int) -> str:
        return f"rows/{index}.bin"


def test_a_sample_that_makes_no_batch_with_the_others_is_named() -> None:
    error = BatchMaker(Rows(), seed=0)(Request(0, np.array([2, 5, 7, 9]))).error
    assert error is not None
    assert error.message.startswith("rows/7.bin makes no batch with rows/2.bin: RuntimeError: ")


def test_a_collate_that_draws_is_seeded_and_kept_from_threads() -> None:
    """As in masking tokens: the same batch whoever makes it, and the training's numbers are its own."""

    def masked(samples: list[Any]) -> torch.Tensor:
        batch = torch.stack(samples)
        return batch * (torch.rand(batch.shape) < 0.5)

    data = [torch.full((4,), float(i + 1)) for i in range(32)]
    epochs = []
    for workers in (0, 1, 2):
        torch.manual_seed(workers)
        before = torch.get_rng_state()
        executor = "processes" if workers else "none"
        with contextlib.closing(
            Loader(data, 8, collate=masked, executor=executor, workers=workers)
        ) as loader:
            epochs.append([batch.clone() for batch in loader])
        assert torch.equal(torch.get_rng_state(), before)
    for epoch in epochs[1:]:
        assert all(map(torch.equal, epoch, epochs[0]))
    with pytest.raises(UsageError, match="which threads would share"):
        next(iter(Loader(data, 8, collate=masked, executor="threads")))


def test_what_is_done_with_a_batch_by_chance_is_kept_from_threads() -> None:
    def mixed(batch: torch.Tensor) -> torch.Tensor:
        return batch * torch.rand(())

    with pytest.raises(UsageError, match="which threads would share"):
        next(iter(Loader([torch.ones(2)] * 8, 4, after=mixed, executor="threads")))


def test_a_generator_may_have_a_default() -> None:
    def own(sample: Any, rng: Any = None) -> Any:
        return sample

    assert takes_two(own)
    assert takes_two(lambda sample, rng: sample)
    assert not takes_two(lambda sample, size=3: sample)
    assert not takes_two(lambda sample: sample)
