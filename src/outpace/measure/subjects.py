"""What is measured: the training's DataLoader and its model, among all that the seams met."""

from __future__ import annotations

from typing import Any

from torch import nn

from outpace.seams.host import Host, RootFacts
from outpace.seams.loader import LoaderSeam, Record


def training_loader(host: Host) -> tuple[Any, Record] | None:
    """The DataLoader that feeds the steps."""
    seam = host.seams.get("loader")
    if isinstance(seam, LoaderSeam):
        pairs = [(k, r) for k, r in list(seam.records.items()) if r.trains]
        return max(pairs, key=lambda pair: pair[1].draws, default=None)
    return None


def main_root(host: Host) -> tuple[nn.Module, RootFacts] | None:
    """The model: of the modules the script calls to learn, the one with most parameters."""
    pairs = [(m, f) for m, f in host.roots.items() if f.has_parameters and f.training_calls]
    return max(pairs, key=lambda pair: sum(p.numel() for p in pair[0].parameters()), default=None)
