"""Checkpoints: the time that ``torch.save`` takes."""

from __future__ import annotations

from typing import Any

import torch

from outpace.seams.host import Host
from outpace.seams.in_place_of import Replaced, in_place_of
from outpace.seams.setup import Setup


class SaveSeam:
    """Stands at ``torch.save``."""

    name = "save"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.replaced = Replaced()

    def install(self) -> None:
        """Put the seam in."""
        self.replaced.put(torch, "save", self.wrap)

    def wrap(self, original: Any) -> Any:
        """``original`` with its time charged to checkpoints."""
        host = self.host

        @in_place_of(torch, "save")
        def save(*args: Any, **kwargs: Any) -> Any:
            if not host.on_main_thread():
                return original(*args, **kwargs)
            host.phases.push("checkpoint")
            try:
                return original(*args, **kwargs)
            finally:
                host.phases.pop()

        return save

    def remove(self) -> None:
        """Take it out."""
        self.replaced.put_all_back()

    def reconcile(self, setup: Setup) -> None:
        """Nothing here is run in another way."""
