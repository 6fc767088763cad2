"""Collated samples kept in memory, shared by all loaders of a data set that have one collate function.

Each epoch's first batch is drawn anew and compared with what is kept, and what the data set holds with
what it held (see `outpace.serve.changes`), so that one that changes from epoch to epoch (``set_epoch``, a
curriculum) is found out before any sample of it is old. One that holds too much to be looked at, and
changes few of its samples, may go on unseen: the user is told to leave it out.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader
from torch.utils.weak import WeakIdKeyDictionary

from outpace.serve.batches import CHECKED, Unlike, by_items, drawn_again, same_bits
from outpace.serve.changes import state_of
from outpace.serve.same_function import Functions, parts_of


class Samples:
    """The kept samples of one data set by one collate function, one row a sample."""

    def __init__(self, count: int) -> None:
        self.structure: Any = None
        self.columns: list[torch.Tensor] = []
        self.have = np.zeros(count, dtype=np.bool_)
        self.state: int | None = None
        """of the data set, as they were drawn from it; None where that cannot be told"""
        self.made_anew = False
        """a collate function of the same name was there before, and is gone"""
        self.lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """Memory that the rows take."""
        return sum(c.numel() * c.element_size() for c in self.columns)

    def add(self, index: int, collated: Any, limit: int) -> None:
        """Put a sample down, collated alone. It is kept once ``have`` says so."""
        leaves, structure = flatten(collated)
        if any(not leaf.dim() or leaf.shape[0] != 1 for leaf in leaves):
            raise Unlike("the collate function does not give one row a sample")
        if elsewhere := next((leaf.device for leaf in leaves if leaf.device.type != "cpu"), None):
            raise Unlike(f"samples are on {elsewhere}")
        with self.lock:
            if not self.columns:
                self._allocate(leaves, structure, limit)
            if structure != self.structure or any(
                leaf.shape[1:] != column.shape[1:] or leaf.dtype != column.dtype
                for leaf, column in zip(leaves, self.columns, strict=True)
            ):
                raise Unlike("samples have no fixed shape")
            for leaf, column in zip(leaves, self.columns, strict=True):
                column[index] = leaf[0]

    def _allocate(self, leaves: list[torch.Tensor], structure: Any, limit: int) -> None:
        size = sum(leaf.numel() * leaf.element_size() for leaf in leaves) * len(self.have)
        room = limit - sum(one.samples.bytes for kept in _kept.values() for one in kept)
        if size > room:
            need, left = size / 2**20, room / 2**20
            raise Unlike(f"all samples take {need:.0f} MiB, there is room for {left:.0f}")
        self.columns = [
            torch.empty((len(self.have), *leaf.shape[1:]), dtype=leaf.dtype) for leaf in leaves
        ]
        self.structure = structure

    def gather(self, rows: Any) -> Any:
        """A batch of kept samples."""
        index = torch.as_tensor(rows)
        return unflatten(self.structure, [c.index_select(0, index) for c in self.columns])


class Kept(NamedTuple):
    """Samples, and the collate function that makes them: its name, and what it is."""

    name: str
    functions: Functions
    samples: Samples


_kept: MutableMapping[Any, list[Kept]] = WeakIdKeyDictionary()
"""by data set: two that are equal may give other samples"""


def samples_of(loader: DataLoader[Any]) -> Samples:
    """What is kept of a loader's data set, as its own collate function gives it."""
    dataset: Any = loader.dataset
    collate, own = loader.collate_fn, Samples(len(dataset))
    name = getattr(collate, "__qualname__", type(collate).__qualname__)
    try:
        kept = _kept.setdefault(dataset, [])
        new = Kept(name, Functions(collate), own)
    except TypeError:  # of a list, say, nobody tells when it is gone
        return own
    over = [one for one in kept if one.functions.are_over()]
    own.made_anew = any(one.name == name for one in over)
    kept[:] = [one for one in kept if one not in over]
    found = next((one for one in kept if one.functions.are(collate)), None)
    if found is None:
        kept.append(new)
    return (found or new).samples


class SampleCache:
    """Batches of one loader out of kept samples, which are drawn when they are first needed.

    ``limit``: bytes that the samples of all data sets together may take. Raises Unlike where
    samples have no fixed shape, do not fit, or are found to have changed.
    """

    def __init__(self, loader: DataLoader[Any], limit: int) -> None:
        self.dataset: Any = loader.dataset
        self.collate: Any = loader.collate_fn
        self.items = by_items(loader)
        self.limit = limit
        self.samples = samples_of(loader)
        self.to_check = CHECKED
        self.begins = False
        """the next batch is an epoch's first"""

    def new_epoch(self) -> None:
        """Compare the next batch with the data set, and that with what it was."""
        self.to_check = max(1, self.to_check)
        self.begins = True

    def fetch(self, indices: Sequence[int]) -> Any:
        """One batch, each sample of which is drawn from the data set once only."""
        if self.samples.made_anew:
            raise Unlike("each loader has a collate function of its own")
        rows = np.asarray(indices)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise Unlike("the sampler gives something other than numbers")
        if rows.size and rows.max() >= len(self.samples.have):
            raise Unlike("the data set has grown")
        if rows.size and rows.min() < 0:
            raise Unlike("the sampler counts from the data set's end")
        if self.begins:
            before, self.begins = self.samples.state, False
            if before is not None and self._state() not in (before, None):
                raise Unlike("the data set has changed")
        wanted = self.items(indices) if self.to_check else None
        try:
            with drawn_again(self.dataset) if self.to_check else contextlib.nullcontext():
                for index in rows[~self.samples.have[rows]]:
                    self._draw(int(index))
        except Unlike as unlike:
            raise Unlike(str(unlike), wanted) from unlike
        batch = self.samples.gather(rows)
        if self.to_check:
            if not same_bits(wanted, batch):
                raise Unlike("kept samples put together again differ from those drawn", wanted)
            if not all(leaf.is_contiguous() for leaf in flatten(wanted)[0]):
                raise Unlike("batches lie in memory otherwise than row by row", wanted)
            self.to_check -= 1
            # It may have opened its files by now.
            self.samples.state = self._state()
        self.samples.have[rows] = True
        return batch

    def _state(self) -> int | None:
        return state_of(self.dataset, *parts_of(self.collate))

    def _draw(self, index: int) -> None:
        """Put down a sample, which a collate function may be unable to take alone."""
        try:
            self.samples.add(index, self.collate([self.dataset[index]]), self.limit)
        except Unlike:
            raise
        except Exception as error:
            raise Unlike(f"sample {index} alone raised {type(error).__name__}: {error}") from error


def flatten(value: Any) -> tuple[list[torch.Tensor], Any]:
    """The tensors of a nested batch, and the nest without them."""
    if isinstance(value, torch.Tensor):
        return [value], None
    if type(value) is dict:
        parts = [flatten(v) for v in value.values()]
        nest: Any = (
            dict,
            tuple(value),
            tuple(n for _, n in parts),
            tuple(len(t) for t, _ in parts),
        )
    elif isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        parts = [flatten(v) for v in value]
        nest = (type(value), None, tuple(n for _, n in parts), tuple(len(t) for t, _ in parts))
    else:
        raise Unlike(f"samples hold {type(value).__name__}, which cannot be stacked")
    return [t for tensors, _ in parts for t in tensors], nest


def unflatten(nest: Any, tensors: list[torch.Tensor]) -> Any:
    """Undo flatten."""
    if nest is None:
        return tensors[0]
    kind, keys, nests, counts = nest
    parts, at = [], 0
    for inner, count in zip(nests, counts, strict=True):
        parts.append(unflatten(inner, tensors[at : at + count]))
        at += count
    return dict(zip(keys, parts, strict=True)) if kind is dict else kind(parts)
