"""Collectives of torch.distributed: counted and timed on the host, not changed."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as distributed

from outpace.seams.host import Host
from outpace.seams.setup import Setup

NAMES = ("all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast",
         "barrier", "reduce", "all_to_all_single")  # fmt: skip


class CollectiveSeam:
    """Stands at the collectives that a script calls itself; DDP's own run inside of its backward."""

    name = "collective"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.originals: dict[str, Any] = {}
        self.counts: dict[str, int] = {}

    def install(self) -> None:
        """Put the seam in."""
        if self.originals or not distributed.is_available():
            return
        for name in NAMES:
            original = getattr(distributed, name, None)
            if original is not None:
                self.originals[name] = original
                setattr(distributed, name, self.wrap(name, original))

    def wrap(self, name: str, original: Any) -> Any:
        """``original`` with its time charged to synchronisation."""
        host, counts = self.host, self.counts

        @functools.wraps(original)
        def collective(*args: Any, **kwargs: Any) -> Any:
            if host.phases.stack or not host.on_main_thread():
                return original(*args, **kwargs)
            counts[name] = counts.get(name, 0) + 1
            host.phases.push("sync")
            try:
                return original(*args, **kwargs)
            finally:
                host.phases.pop()

        return collective

    def remove(self) -> None:
        """Take it out."""
        for name, original in self.originals.items():
            setattr(distributed, name, original)
        self.originals = {}

    def reconcile(self, setup: Setup) -> None:
        """Nothing here is run in another way."""
