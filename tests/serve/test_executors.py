from __future__ import annotations

import shutil
import threading
import time
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch

from outpace.serve.executors import Threads, fetch_threads
from outpace.serve.making import Made, Request
from outpace.serve.processes import SHARED, shared_free


def test_where_the_system_gives_too_few_threads_none_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start, before = threading.Thread.start, torch.get_num_threads()
    started: list[threading.Thread] = []

    def some(thread: Any) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        start(thread)
        started.append(thread)

    monkeypatch.setattr(threading.Thread, "start", some)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        fetch_threads(4)
    assert len(started) == 2
    assert not any(thread.is_alive() for thread in started)
    assert torch.get_num_threads() == before


def test_torch_operations_stay_in_the_thread_that_makes_a_batch() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    pool = fetch_threads(2)
    try:
        told = [pool.submit(torch.get_num_threads) for _ in range(8)]
        assert {number.result() for number in told} == {1}
        assert torch.get_num_threads() == 2
    finally:
        pool.shutdown()
        torch.set_num_threads(before)


@pytest.mark.skipif(not SHARED.is_dir(), reason="no folder of shared memory")
def test_ranks_of_a_machine_share_its_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(100, 20, 80))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert shared_free() == 20


class Waiting:
    """Makes batches, and tells of which it was asked."""

    def __init__(self) -> None:
        self.begun: list[int] = []

    def __call__(self, request: Request) -> Made:
        self.begun.append(request.epoch)
        return Made(request.epoch)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_one_is_always_made_beside_the_one_that_is_handed_out(depth: int) -> None:
    maker: Any = Waiting()
    threads = Threads(maker, 1, depth)
    try:
        batches = threads.made(Request(i, np.zeros(0, np.int64)) for i in range(4))
        assert next(batches).batch == 0
        until = time.monotonic() + 20
        while maker.begun != [0, 1]:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert [made.batch for made in batches] == [1, 2, 3]
    finally:
        threads.close()
