"""Samples that a worker makes after the script's `worker_init_fn`, and those of the training's process."""

from __future__ import annotations

import multiprocessing
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from outpace.seams.setup import Feed, Setup
from outpace.serve.batches import same_bits
from outpace.serve.feeds import make_feed
from outpace.serve.in_worker import same_in_worker
from tests.remedies.trainings import hosted


class Scaled(Dataset[Any]):
    scale = 1.0
    rows: Any = torch.arange(24.0)

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        return self.rows[index] * self.scale


class Noisy(Scaled):
    """Draws from all generators, one of its own among them."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)

    def __getitem__(self, index: int) -> Any:
        noise = random.random() + np.random.rand() + torch.rand(1) + self.rng.random()
        return super().__getitem__(index) + noise


class OfWorkers(Scaled):
    rows = None


def scaling(worker: int) -> None:
    print("a worker begins", flush=True)
    info: Any = get_worker_info()
    info.dataset.scale = 1 / 255


def opening(worker: int) -> None:
    info: Any = get_worker_info()
    info.dataset.rows = torch.arange(24.0)


def seeding(worker: int) -> None:
    random.seed(7 + worker)
    np.random.seed(7 + worker)


def failing(worker: int) -> None:
    raise RuntimeError("no worker begins")


@pytest.mark.parametrize(
    ("data", "begin", "same"),
    [
        (Scaled(), scaling, False),
        (OfWorkers(), opening, False),
        (Scaled(), failing, False),
        (Scaled(), seeding, True),
        (Noisy(), seeding, True),
    ],
    ids=["scaling", "opening", "failing", "seeding", "seeding for noise"],
)
@pytest.mark.parametrize("batch_size", [4, None])
def test_a_function_that_begins_workers(
    data: Any, begin: Any, same: bool, batch_size: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(2)
    how: dict[str, Any] = {"batch_size": batch_size, "worker_init_fn": begin}
    generators = torch.get_rng_state(), random.getstate()
    assert same_in_worker(DataLoader(data, num_workers=2, **how)) == same
    assert same_bits(generators, (torch.get_rng_state(), random.getstate()))
    for workers, executor in ((2, "inline"), (2, "ahead"), (0, "processes")):
        loader = DataLoader(data, num_workers=workers, **how)
        feed = Feed(executor=executor, workers=1)  # type: ignore[arg-type]
        if same:
            make_feed(loader, feed).close()
        else:
            with pytest.raises(NotImplementedError, match="worker_init_fn"):
                make_feed(loader, feed)
    assert capfd.readouterr() == ("", "")
    assert not any(worker.is_alive() for worker in multiprocessing.active_children())


@pytest.mark.parametrize("executor", ["inline", "ahead", "threads"])
@pytest.mark.parametrize("fetch", ["items", "slice", "cache"])
def test_a_loader_whose_workers_begin_so_gives_its_own_batches(executor: Any, fetch: Any) -> None:
    def batches() -> list[Any]:
        return list(DataLoader(Scaled(), 4, num_workers=1, worker_init_fn=scaling))

    wanted = batches()
    feed = Feed(executor=executor, fetch=fetch, workers=2, cache_bytes=2**20)
    with hosted(Setup(feed=feed)) as host:
        assert same_bits(batches(), wanted)
        assert not host.broken
