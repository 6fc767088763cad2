"""Queues by which a thread of the script's hands batches to the training."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn

from outpace.measure.subjects import handing
from outpace.seams.handed import HandedSeam, holds_data
from outpace.seams.host import Host
from outpace.seams.setup import AS_IS, Setup

FREE = Setup(free_input=True)


@pytest.fixture
def host() -> Iterator[Host]:
    plain = queue.Queue.get
    with hosted(switching=True) as host:
        host.add(HandedSeam(host))
        host.seams["handed"].install()
        yield host
        assert not host.broken
    assert queue.Queue.get is plain


class Training:
    """Learns from what a queue gives."""

    def __init__(self) -> None:
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    def learn(self, x: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(x).square().mean().backward()
        self.optimizer.step()


def numbered(count: int, most: int) -> queue.Queue[Any]:
    """Batches that a thread puts in, each filled with its number."""
    batches: queue.Queue[Any] = queue.Queue(most)

    def put() -> None:
        for index in range(count):
            batches.put({"x": torch.full((2, 4), float(index))})
        batches.put(None)

    threading.Thread(target=put, daemon=True).start()
    return batches


def seam_of(host: Host) -> HandedSeam:
    seam = host.seams["handed"]
    assert isinstance(seam, HandedSeam)
    return seam


def test_one_batch_comes_again_and_none_is_lost(host: Host) -> None:
    training, batches, seen = Training(), numbered(20, 4), []
    for step in range(30):
        if step in (10, 20):
            host.switch(FREE if step == 10 else AS_IS)
        batch = batches.get()
        if step == 10:
            assert batches.full(), "the thread rests"
        x = batch.pop("x")
        seen.append(int(x[0, 0]))
        training.learn(x)
        batches.task_done()
    assert seen == [*range(10), *[9] * 10, *range(10, 20)]
    assert batches.get() is None
    assert handing(host) is seam_of(host)


def test_the_end_of_an_epoch_is_no_batch(host: Host) -> None:
    """A queue that will not be full any more is not waited for."""
    training, batches = Training(), numbered(8, 20)
    while (batch := batches.get()) is not None:
        training.learn(batch["x"])
    host.switch(FREE)
    assert torch.equal(batches.get()["x"], torch.full((2, 4), 7.0))


def test_a_queue_that_takes_any_number_does_not_rest(host: Host) -> None:
    training, batches = Training(), numbered(20, 0)
    for _ in range(20):
        training.learn(batches.get()["x"])
    assert seam_of(host).drawn == 20
    assert handing(host) is None


def test_a_queue_that_gives_little_feeds_no_steps(host: Host) -> None:
    training, batches = Training(), numbered(20, 4)
    for step in range(20):
        if step % 4 == 0:
            batch = batches.get()
        training.learn(batch["x"])
    assert handing(host) is None


def test_other_threads_draw_as_ever(host: Host) -> None:
    training, batches, drawn = Training(), numbered(20, 4), []
    for _ in range(10):
        training.learn(batches.get()["x"])
    host.switch(FREE)
    other = threading.Thread(target=lambda: drawn.append(batches.get()))
    other.start()
    other.join()
    assert int(drawn[0]["x"][0, 0]) == 10


@pytest.mark.parametrize(
    ("item", "data"),
    [
        (torch.zeros(1), True),
        ((np.zeros(1), 3), True),
        ({"x": [torch.zeros(1)]}, True),
        (None, False),
        ("done", False),
        ((1, None), False),
        (object(), False),
    ],
)
def test_what_is_a_batch(item: object, data: bool) -> None:
    assert holds_data(item) is data
