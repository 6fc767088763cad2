"""What a DataLoader's workers have ready."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from outpace.seams.queued import queued


def begun(batches: int, workers: int = 1) -> Any:
    """An epoch's iterator, with all ready that its workers make ahead."""
    data = TensorDataset(torch.zeros(batches, 1))
    iterator: Any = iter(DataLoader(data, batch_size=1, num_workers=workers))
    until = time.monotonic() + 60
    while (queued(iterator) or 0) < min(batches, 2 * workers) and time.monotonic() < until:
        if queued(iterator) is None:
            break
        time.sleep(0.01)
    return iterator


def test_as_many_as_are_made_ahead() -> None:
    assert queued(begun(batches=20)) == 2


def test_none_once_an_epoch_has_no_more_to_make() -> None:
    iterator = begun(batches=4)
    next(iterator)
    assert queued(iterator) is not None
    next(iterator)
    next(iterator)
    assert queued(iterator) is None
    assert queued(begun(batches=3, workers=2)) is None


def test_nothing_is_ready_where_none_works_ahead() -> None:
    assert queued(iter(DataLoader([0, 1, 2]))) == 0  # type: ignore[arg-type]
    assert queued(None) == 0
