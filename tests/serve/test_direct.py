from __future__ import annotations

import multiprocessing
import queue as queues
from typing import Any

from outpace.serve.direct import MOST, send_directly


def echo(asked: Any, answered: Any) -> None:
    while (thing := asked.get()) is not None:
        answered.put(thing)


def test_what_is_put_arrives_and_small_things_need_no_thread() -> None:
    context = multiprocessing.get_context("fork")
    asked: Any = context.Queue()
    answered: Any = context.Queue()
    worker = context.Process(target=echo, args=(asked, answered))
    worker.start()
    send_directly(asked)
    for thing in range(20):
        asked.put(thing)
    assert [answered.get(timeout=60) for _ in range(20)] == list(range(20))
    assert asked._thread is None
    large = bytes(MOST)
    asked.put(large)
    assert answered.get(timeout=60) == large
    assert asked._thread is not None
    asked.put(None)
    worker.join(60)
    assert worker.exitcode == 0


def test_another_kind_of_queue_is_left_alone() -> None:
    plain: Any = queues.Queue()
    before = plain.put
    send_directly(plain)
    assert plain.put == before
