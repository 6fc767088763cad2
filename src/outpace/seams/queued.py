"""Batches that a DataLoader's workers have made and that nobody has drawn yet."""

from __future__ import annotations

from typing import Any


def queued(iterator: Any) -> int | None:
    """How many there are of one iterator; 0 where none works ahead, or the system does not tell. None: its
    workers have no more to make in this epoch, so that what is drawn is not made anew.
    """
    ahead = getattr(iterator, "_prefetch_factor", None) or 0
    most = ahead * getattr(iterator, "_num_workers", 0)
    if getattr(iterator, "_tasks_outstanding", most) < most:
        return None
    queues = {
        id(each): each
        for name in ("_worker_result_queue", "_data_queue")
        if (each := getattr(iterator, name, None)) is not None
    }
    early = getattr(iterator, "_task_info", {}).values()
    try:
        waiting = sum(int(each.qsize()) for each in queues.values())
    except (NotImplementedError, OSError):
        return 0
    return waiting + sum(len(task) == 2 for task in list(early))
