"""Collectives of torch.distributed: timed on the host, and the exchange of gradients left out."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as distributed
from torch.nn.parallel import DistributedDataParallel

from outpace.seams.host import Host
from outpace.seams.in_place_of import Replaced
from outpace.seams.setup import AS_IS, Setup
from outpace.seams.where import caller

NAMES = ("all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast",
         "barrier", "reduce", "all_to_all_single")  # fmt: skip


class Done:
    """What an asynchronous collective that was left out returns."""

    def wait(self, timeout: Any = None) -> bool:
        """It is over."""
        return True

    def is_completed(self) -> bool:
        """It is."""
        return True


class CollectiveSeam:
    """Stands at the collectives that a script calls itself; DDP's own run inside of its backward."""

    name = "collective"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.replaced = Replaced()
        self.where: str | None = None
        """file:line of the script's first exchange of its own"""
        self.silent = False

    def install(self) -> None:
        """Put the seam in."""
        for name in NAMES:
            if hasattr(distributed, name):
                self.replaced.put(distributed, name, functools.partial(self.wrap, name))

    def wrap(self, name: str, original: Any) -> Any:
        """``original`` with its time charged to synchronisation."""
        host = self.host

        @functools.wraps(original)
        def collective(*args: Any, **kwargs: Any) -> Any:
            if host.phases.stack or not host.on_main_thread():
                return original(*args, **kwargs)
            self.where = self.where or host.guard("collective", caller)
            if self.silent and name == "all_reduce":
                return Done() if kwargs.get("async_op") else None
            host.phases.push("sync")
            try:
                return original(*args, **kwargs)
            finally:
                host.phases.pop()

        return collective

    def remove(self) -> None:
        """Take it out."""
        self.replaced.put_all_back()
        self.reconcile(AS_IS)

    def reconcile(self, setup: Setup) -> None:
        """Exchange gradients, or not: what DDP's own ``no_sync`` does."""
        if setup.free_communication == self.silent:
            return
        self.silent = setup.free_communication
        for module in list(self.host.roots):
            if isinstance(module, DistributedDataParallel):
                module.require_backward_grad_sync = not self.silent
