from __future__ import annotations

import os
import threading
import time
from typing import Any

import pytest

from outpace.serve import decode, shelf, spill
from outpace.serve.forks import lock_for_forks

LOCKS = {
    "new": lock_for_forks(),
    "shelf": shelf.LOCK,
    "spill": spill.LOCK,
    "decode": decode.LOCK,
}


def free(lock: Any) -> bool:
    found = lock.acquire(timeout=5)
    if found:
        lock.release()
    return bool(found)


@pytest.mark.parametrize("name", LOCKS)
def test_a_child_finds_free_what_a_thread_held(name: str) -> None:
    lock, held = LOCKS[name], threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            time.sleep(0.2)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        os._exit(0 if free(lock) else 1)
    _, status = os.waitpid(child, 0)
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert free(lock)
