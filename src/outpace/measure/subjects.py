"""What is measured: the training's DataLoader and its model, among all that the seams met."""

from __future__ import annotations

from typing import Any

from torch import nn

from outpace.seams.host import Host, RootFacts
from outpace.seams.loader import LoaderSeam
from outpace.seams.loader_record import Record


def training_loader(host: Host) -> tuple[Any, Record] | None:
    """The DataLoader that feeds the steps."""
    seam = host.seams.get("loader")
    if isinstance(seam, LoaderSeam):
        pairs = [(k, r) for k, r in list(seam.records.items()) if r.trains]
        return max(pairs, key=lambda pair: pair[1].draws, default=None)
    return None


def main_root(host: Host) -> tuple[nn.Module, RootFacts] | None:
    """The model, as the host knows it."""
    return host.main_root()
