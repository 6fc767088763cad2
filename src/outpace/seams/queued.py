"""Batches that a DataLoader's workers have made and that nobody has drawn yet."""

from __future__ import annotations

from typing import Any


def queued(iterator: Any) -> int:
    """How many there are of one iterator; 0 where none works ahead, or the system does not tell."""
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
