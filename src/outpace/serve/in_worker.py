"""Whether samples are the same in a worker, after the script's `worker_init_fn`, as they are here.

Such a function may do more than seed: set what samples are scaled by, or open a file. So a worker is started
that makes a few, with its generators of random numbers seeded as they are here; what it prints goes nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, get_worker_info

from outpace.serve.batches import Fetch, by_items, same_bits
from outpace.serve.heirs import no_heirs
from outpace.serve.held import all_kept, held_by, seed_all
from outpace.serve.one_thread import one_thread
from outpace.serve.open_files import none_drawn
from outpace.serve.print_nowhere import print_nowhere

TRIED = 4
PATIENCE_S = 60.0


def same_in_worker(loader: DataLoader[Any]) -> bool:
    """Whether a few samples are; False where that cannot be told."""
    dataset: Any = loader.dataset
    try:
        some = sorted({place * len(dataset) // TRIED for place in range(TRIED)})
        held = held_by(source=dataset)
        with all_kept(held), none_drawn(dataset):
            theirs = _by_worker(loader, some)
            _seed(dataset)
            draw = alone(loader)
            with one_thread():
                return same_bits([draw(index) for index in some], theirs)
    except Exception:
        return False


def alone(loader: DataLoader[Any]) -> Fetch:
    """A sample as the DataLoader gives it, in a batch of its own where it makes batches."""
    fetch = by_items(loader)
    return (lambda index: fetch([index])) if loader._auto_collation else fetch


def _by_worker(loader: DataLoader[Any], some: list[int]) -> list[Any]:
    asked: dict[str, Any] = {"batch_size": None, "sampler": some}
    if loader._auto_collation:
        asked = {"batch_sampler": [[index] for index in some]}
    twin: Any = DataLoader(
        loader.dataset,
        num_workers=1,
        collate_fn=loader.collate_fn,
        worker_init_fn=Begin(loader.worker_init_fn),
        multiprocessing_context=loader.multiprocessing_context,
        timeout=PATIENCE_S,
        generator=torch.Generator(),  # the script's own draws no seed for this
        **asked,
    )
    with no_heirs():
        batches: Any = twin._get_iterator()  # unseen by the seams
    try:
        return list(batches)
    finally:
        batches._shutdown_workers()  # one that failed waits else until the garbage is collected


class Begin:
    """A `worker_init_fn` that runs the script's own, out of sight, and seeds all generators after it."""

    def __init__(self, own: Callable[[int], None] | None) -> None:
        self.own = own

    def __call__(self, worker: int) -> None:
        """Begin a worker."""
        print_nowhere()
        if self.own is not None:
            self.own(worker)
        info = get_worker_info()
        assert info is not None
        _seed(info.dataset)


def _seed(dataset: Any) -> None:
    seed_all(0, 0, 0, held_by(source=dataset))
