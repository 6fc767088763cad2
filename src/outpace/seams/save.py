"""Checkpoints: the time that ``torch.save`` takes."""

from __future__ import annotations

from typing import Any

import torch

from outpace.seams.host import Host
from outpace.seams.in_place_of import in_place_of, put_back
from outpace.seams.setup import Setup
from outpace.seams.where import caller


class SaveSeam:
    """Stands at ``torch.save``."""

    name = "save"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.original: Any = None
        self.ours: Any = None
        self.count = 0
        self.where: str | None = None

    def install(self) -> None:
        """Put the seam in."""
        if self.original is not None:
            return
        self.original = original = torch.save
        seam, host = self, self.host

        @in_place_of(torch, "save")
        def save(*args: Any, **kwargs: Any) -> Any:
            if not host.on_main_thread():
                return original(*args, **kwargs)
            seam.count += 1
            seam.where = host.guard("save", caller)
            host.phases.push("checkpoint")
            try:
                return original(*args, **kwargs)
            finally:
                host.phases.pop()

        torch.save = self.ours = save

    def remove(self) -> None:
        """Take it out."""
        if self.original is not None and put_back(torch, "save", self.ours, self.original):
            self.original = None

    def reconcile(self, setup: Setup) -> None:
        """Nothing here is run in another way."""
