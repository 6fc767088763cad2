from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections import deque, namedtuple
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outpace.serve.executors import Kind, Threads, _OnItsWay, fetch_threads, start
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


def test_a_batch_that_was_taken_back_is_asked_for_again() -> None:
    """Also where one after it is made already, as when there are more threads by now."""
    maker: Any = Waiting()
    threads, made = Threads(maker, 1, 4), Future[Made]()
    made.set_result(Made(1))
    requests = [Request(i, np.zeros(0, np.int64)) for i in range(2)]
    on_their_way = deque(_OnItsWay(request, os.getpid()) for request in requests)
    on_their_way[1].future = made
    try:
        assert [threads._taken(on_their_way).batch for _ in range(2)] == [0, 1]
    finally:
        threads.close()


class Growing:
    """Batches of one number, then of a thousand; each that is made adds a byte to a file, in any process."""

    streams = ()

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unopened = None

    def state(self) -> int:
        return 0

    def __call__(self, request: Request) -> Made:
        with self.path.open("ab") as file:
            file.write(b".")
        return Made(torch.full((1 if request.epoch < 4 else 1000,), request.epoch))


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_what_is_on_its_way_is_as_many_bytes_as_may_be(kind: Kind, tmp_path: Path) -> None:
    workers, most, large = 2, 32_000, 8_000
    maker: Any = Growing(tmp_path / "made")
    executor = start(kind, maker, workers, 16, 8, most_bytes=most)
    try:
        batches = executor.made(Request(i, np.zeros(0, np.int64)) for i in range(40))
        assert int(next(batches).batch[0]) == 0
        count = at_rest(maker.path)
        assert (count - 4) * large <= most + workers * large
        assert [int(made.batch[0]) for made in batches] == list(range(1, 40))
        assert maker.path.stat().st_size == 40
    finally:
        executor.close()


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_each_worker_makes_one_batch_however_large(kind: Kind, tmp_path: Path) -> None:
    maker: Any = Growing(tmp_path / "made")
    executor = start(kind, maker, 2, 16, 8, most_bytes=0)
    try:
        for count in (10, 20):  # what is left of the first is not waited for
            batches = executor.made(Request(i, np.zeros(0, np.int64)) for i in range(20))
            found = [int(made.batch[0]) for _, made in zip(range(count), batches, strict=False)]
            assert found == list(range(count))
            del batches
    finally:
        executor.close()


def at_rest(path: Path) -> int:
    """A file's size once it has not moved for a while."""
    before = -1
    while before != path.stat().st_size:
        before = path.stat().st_size
        time.sleep(0.3)
    return before


LEFT = """
import sys, time
from outpace.serve.loader import Loader
class Told:
    def __len__(self): return 64
    def __getitem__(self, index):
        open(sys.argv[1], "a").write(".")
        time.sleep(0.02)
        return index
batches = iter(Loader(Told(), 1, executor="threads", workers=2))
for step in range(3):
    next(batches)
open(sys.argv[1], "w").close()
"""


def test_a_process_that_ends_makes_no_more_batches(tmp_path: Path) -> None:
    path = tmp_path / "made"
    subprocess.run([sys.executable, "-c", LEFT, str(path)], check=True, timeout=100)
    # Those that were being made, and what was begun meanwhile: 61 are left.
    assert path.stat().st_size <= 30


def test_threads_that_are_begun_as_ctrl_c_comes_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else Python would wait for them for ever at its end."""
    wait = threading.Barrier.wait

    def interrupted(self: threading.Barrier, timeout: float | None = None) -> int:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return wait(self, timeout)

    monkeypatch.setattr(threading.Barrier, "wait", interrupted)
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        fetch_threads(3)
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
        assert not thread.is_alive()
