"""The other loader itself is tried where it is installed: pip install 'outpace[rivals]'."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import Any

import pytest

from outpace.errors import DataError
from outpace.serve.loader import Loader

SIZE = 50
SAMPLES = list(range(SIZE))
ALONE: dict[str, Any] = {
    "_index_sampler_state": None,
    "_sampler_iter_state": {"samples_yielded": 24},
    "_sampler_iter_yielded": 3,
    "_num_yielded": 3,
    "_IterableDataset_len_called": None,
    "_shared_seed": None,
    "fetcher_state": None,
    "dataset_state": None,
    "_iterator_finished": False,
}
"""after three batches of eight"""
WITH_WORKERS: dict[str, Any] = {
    "_snapshot": {"_snapshot_step": 2, "_last_yielded_worker_id": 1, "_main_snapshot": {}},
    "_steps_since_snapshot": 1,
    "_iterator_finished": False,
}


def loader(batch_size: int = 8, **how: Any) -> Loader:
    return Loader(SAMPLES, batch_size, executor="none", **{"shuffle": False, **how})


def drawn(batches: Any) -> list[int]:
    return [i for batch in batches for i in batch.tolist()]


@pytest.mark.parametrize(
    "state", [ALONE, {**ALONE, "_sampler_iter_state": None}, WITH_WORKERS], ids=["a", "b", "c"]
)
def test_its_state_is_gone_on_from(state: dict[str, Any]) -> None:
    ours = loader()
    ours.load_state_dict(state)
    assert drawn(ours) == SAMPLES[24:]
    ranks = [loader(8, rank=rank, world=2) for rank in (0, 1)]
    for one in ranks:
        one.load_state_dict(state)
    assert [drawn(one) for one in ranks] == [SAMPLES[48::2], SAMPLES[49::2]]


def test_samples_count_where_it_tells_them() -> None:
    ours = loader(7)
    ours.load_state_dict(ALONE)
    assert drawn(ours) == SAMPLES[24:]


def test_an_epoch_that_is_over_is_followed_by_the_next() -> None:
    ours = loader()
    ours.load_state_dict({**WITH_WORKERS, "_iterator_finished": True})
    assert (ours.epoch, drawn(ours)) == (1, SAMPLES)


def test_an_order_that_is_not_ours_is_refused() -> None:
    with pytest.raises(DataError, match="shuffles by a generator of torch"):
        loader(shuffle=True).load_state_dict(ALONE)
    with pytest.raises(DataError, match="shuffles by a generator of torch"):
        loader(shuffle=True).state_dict(torchdata=True)


def test_a_state_is_written_as_it_writes_it() -> None:
    ours = loader()
    list(islice(ours, 3))
    assert ours.state_dict(torchdata=True) == ALONE


@pytest.mark.parametrize("workers", [0, 2])
def test_both_go_on_from_each_other(workers: int) -> None:
    theirs = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    begun = theirs(SAMPLES, 8, num_workers=workers)
    batches = iter(begun)
    first = drawn(islice(batches, 3))
    with closing(loader()) as ours:
        ours.load_state_dict(begun.state_dict())
        assert first + drawn(ours) == SAMPLES
        again = theirs(SAMPLES, 8)
        ours.set_epoch(0)
        first = drawn(islice(ours, 4))
        again.load_state_dict(ours.state_dict(torchdata=True))
        assert first + drawn(again) == SAMPLES
    del batches


def test_what_is_repeated_is_not_exchanged() -> None:
    ours = loader()
    ours.repeat([2.0] + [1.0] * (SIZE - 1))
    with pytest.raises(DataError, match=r"repeat\(\)"):
        ours.state_dict(torchdata=True)
    with pytest.raises(DataError, match=r"repeat\(\)"):
        ours.load_state_dict(ALONE)


def test_a_last_batch_that_was_filled_up_is_drawn() -> None:
    one = Loader(list(range(10)), 2, executor="none", shuffle=False, rank=0, world=4)
    list(islice(one, 2))
    assert one.state_dict(torchdata=True)["_sampler_iter_state"]["samples_yielded"] == 3


def test_a_place_that_ranks_do_not_share_is_not_told() -> None:
    before = loader(8, rank=0, world=2)
    list(islice(before, 1))
    three = loader(8, rank=0, world=3)
    three.load_state_dict(before.state_dict())
    with pytest.raises(DataError, match="16 samples were drawn, which 3 ranks"):
        three.state_dict(torchdata=True)
