"""A DataLoader's own iterator, in whatever its class makes of it.

A class may wrap it in another that changes each batch, as those of PyTorch Geometric do.
"""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter


def own_iterator(made: Any) -> Any:
    """The one that draws the batches, inside of what a loader gave; that itself where none is found there."""
    held = [made, *getattr(made, "__dict__", {}).values()]
    return next((each for each in held if isinstance(each, _BaseDataLoaderIter)), made)


def wraps_its_own(loader: DataLoader[Any]) -> bool:
    """Whether its class makes something of it."""
    return type(loader)._get_iterator is not DataLoader._get_iterator
