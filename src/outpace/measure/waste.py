"""Arithmetic on nothing: positions that are padding, and products with operands that are all but empty."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import torch

from outpace.measure.dispatch import address_of, tensors_in

EMPTY = 0.95
"""share of zeros from which on an operand is all but empty; half are usual after a ReLU, and in the rows or
columns that a mask leaves there are few. About there a product with a sparse tensor takes as long as with a
dense one (1.2 to 3 times as fast at 0.95 on two cores, 2 to 9 times at 0.99)"""
SPARSE_AT = {"embedding": 4, "_embedding_bag": 5}
"""operators that look rows up, and which of their arguments says that gradients are sparse"""
LARGE = 1 << 20
"""bytes of a table that is looked at"""
VIEWS = ("view", "_unsafe_view", "reshape", "_reshape_alias")
RECURRENT = ("mkldnn_rnn_layer", "_cudnn_rnn", "lstm", "gru", "rnn_tanh", "rnn_relu")
OFTEN = 0.1
"""share of zeros in what is no padding, or of rows of one index, from which on these are data"""
FEWEST = 4096
"""numbers in an operand that is looked at"""


class Table(NamedTuple):
    """A table of an embedding."""

    nbytes: int
    looked_up: torch.Tensor
    """which of its rows"""


class Waste:
    """Looks at what operators are given.

    ``flops``: those with a zero in the product that an index would spare, or a sparse tensor where some rows
    have ``several`` numbers; ``making_s``: seconds in which one-hot rows are made. ``padding`` and
    ``trimmed`` are as `padded` tells, of what ``sequence_flops`` are spent on.
    """

    def __init__(self) -> None:
        self.flops = self.making_s = 0.0
        self.several = False
        self.made: defaultdict[int, float] = defaultdict(float)
        """seconds of operators that give so many numbers, and are no products"""
        self.packed = False
        """sequences without their padding were made: what is met of it is not computed with"""
        self.batches: dict[int, torch.Tensor] = {}
        """sequences of vectors, by their memory"""
        self.padding = self.trimmed = 0.0
        self.positions: set[int] = set()
        """lengths by which operands of sequences are known: theirs, and that of all in a batch"""
        self.sequence_flops = 0.0
        """with such an operand: a picture's, or a user's, beside them have none of their padding"""
        self.given: set[int] = set()
        """memory of operands of the forward pass that are all but empty"""
        self.entries = 0
        """of the largest table that was looked up: a vocabulary, beside positions and kinds of tokens"""
        self.tables: dict[tuple[int, int, int], Table] = {}
        """those that are looked up and get dense gradients: by their memory, and where and how long in it"""
        self.used: set[int] = set()
        """memory of what other operators are given: of a table that is an output layer too"""

    def see(
        self,
        name: str,
        args: Any,
        flops: float,
        backward: bool = False,
        took_s: float = 0.0,
        made: torch.Tensor | None = None,
    ) -> None:
        """Look at one operator of so many FLOPs, and seconds, and what it has ``made`` in memory of its own.

        In a backward pass gradients may be all but zero, as where a loss asks for one position of many:
        there, only what was so in the forward pass counts.
        """
        if not (flops or backward or made is None):
            self.made[made.numel()] += took_s
        if name in SPARSE_AT:
            self._look_up(args, args[SPARSE_AT[name]] if len(args) > SPARSE_AT[name] else False)
        if name == "_pack_padded_sequence":  # what is padding is left out
            self.packed, self.padding, self.trimmed = True, 0.0, 0.0
        if name == "embedding" and not self.packed:
            entries = len(args[0])
            if entries >= self.entries:
                if entries > self.entries:
                    self.entries, self.padding, self.trimmed = entries, 0.0, 0.0
                    self.positions, self.sequence_flops = set(), 0.0
                self.padding, self.trimmed = max((self.padding, self.trimmed), padded(args[1]))
                self._note_positions(args[1])
        if not self.entries and not self.packed and not backward:
            self._look_at_features(name, args, flops)
        if flops and any(self.positions.intersection(t.shape) for t in tensors_in(args)):
            self.sequence_flops += flops
        if flops:
            looked = [t for t in tensors_in(args) if not backward or address_of(t) in self.given]
            empty, tensor = max(
                ((scattered(t), t) for t in looked), key=lambda pair: pair[0], default=(0.0, None)
            )
            if empty >= EMPTY and tensor is not None:
                sparse = not (one_hot(tensor) or one_hot(tensor.mT))
                self.several |= sparse
                self.flops += (1.0 - (1.0 - empty) / (1.0 - EMPTY) if sparse else empty) * flops
                if not sparse:
                    self.making_s += self.made.pop(tensor.numel(), 0.0)
                self.given.add(address_of(tensor))

    def _look_at_features(self, name: str, args: Any, flops: float) -> None:
        """Of sequences of vectors, the batches that a layer computes with and nothing is learnt through."""
        given = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if name in VIEWS and given is not None and given.dim() == 3 and not given.requires_grad:
            self.batches[address_of(given)] = given  # a linear layer makes rows of it first
        if not flops:
            return
        if given is not None and given.dim() == 3 and not given.requires_grad:
            if name in ("convolution", "conv1d"):
                self._note(given.transpose(1, 2))
            elif name in RECURRENT:
                self._note(given.transpose(0, 1))
        for rows in tensors_in(args):
            batch = self.batches.get(address_of(rows))
            if batch is not None and rows.dim() == 2 and rows.numel() == batch.numel():
                self._note(batch)

    def _note(self, batch: torch.Tensor) -> None:
        if batch.numel() >= FEWEST:
            self.padding, self.trimmed = max((self.padding, self.trimmed), padded_vectors(batch))
            self._note_positions(batch)

    def _note_positions(self, batch: torch.Tensor) -> None:
        if batch.dim() > 1 and min(batch.shape[:2]) > 1:
            self.positions |= {batch.shape[1], batch.shape[0] * batch.shape[1]}

    def use(self, name: str, args: Any) -> None:
        """An operator before the backward pass: what it is given may get a gradient everywhere."""
        if name not in SPARSE_AT:
            self.used.update(address_of(tensor) for tensor in tensors_in(args))

    def _look_up(self, args: Any, sparse: bool) -> None:
        table, indices = args[0], args[1]
        learnt = table.requires_grad and table.is_leaf and torch.is_grad_enabled()
        if sparse or not learnt or table.nbytes < LARGE:
            return
        at = address_of(table), table.storage_offset(), len(table)
        if at not in self.tables:
            self.tables[at] = Table(table.nbytes, torch.zeros(len(table), dtype=torch.bool))
        self.tables[at].looked_up[indices.detach().flatten().cpu()] = True

    def untouched_bytes(self) -> float:
        """Of the rows of those tables that were not looked up."""
        return sum(
            table.nbytes * (1.0 - float(table.looked_up.float().mean()))
            for at, table in self.tables.items()
            if at[0] not in self.used
        )


class Paddings:
    """Padding of what is looked up in the largest table, batch by batch: some have a long sequence in them,
    and others none.
    """

    def __init__(self) -> None:
        self.entries = 0
        self.found: list[tuple[float, float]] = []

    def see(self, table: torch.Tensor, indices: torch.Tensor) -> None:
        """A batch, or a part of it."""
        if len(table) > self.entries:
            self.entries, self.found = len(table), []
        if len(table) == self.entries and indices.dim() == 2 and min(indices.shape) > 1:
            self.found.append(padded(indices))

    def mean(self) -> tuple[float, float] | None:
        """As `padded` tells of one; None where there was none."""
        if not self.found:
            return None
        padding, trimmed = (sum(each) / len(self.found) for each in zip(*self.found, strict=True))
        return padding, trimmed


def zeros(tensor: torch.Tensor) -> float:
    """Share of zeros in a matrix of some size; 0 for anything else, as one that is stored as sparse."""
    if tensor.dim() < 2 or tensor.numel() < FEWEST or not tensor.is_floating_point():
        return 0.0
    if tensor.layout is not torch.strided:
        return 0.0
    return 1.0 - float(torch.count_nonzero(tensor.detach())) / tensor.numel()


def scattered(tensor: torch.Tensor) -> float:
    """The same where its numbers lie apart from each other, else 0: not of whole rows that are masked, or
    of units that are all dead.
    """
    empty = zeros(tensor)
    if not EMPTY <= empty < 1.0:
        return 0.0
    there = tensor.detach().flatten(0, -2) != 0
    rows, columns = (int(there.any(dim).sum()) for dim in (1, 0))
    room = min(rows * there.shape[1], columns * there.shape[0])
    return empty if int(there.sum()) <= (1 - EMPTY) * room else 0.0


def one_hot(tensor: torch.Tensor) -> bool:
    """Whether none of its rows has more than one number."""
    return int((tensor.detach() != 0).sum(-1).max()) <= 1


def padded(indices: torch.Tensor) -> tuple[float, float]:
    """Share of positions in a batch of sequences (batch x length) that repeat one index to an end.

    And the share that lies beyond the longest of these sequences. Not where there are rows of nothing else,
    as the steps of a batch that lies the other way have them. And not of an index that is often met elsewhere
    too, as a blank pixel, or at the last position alone, as the value of a table's last field.
    """
    if indices.dim() != 2 or min(indices.shape) < 2:
        return 0.0, 0.0
    return max(_runs(one) for one in (indices, indices.flip(1)))


def padded_vectors(batch: torch.Tensor) -> tuple[float, float]:
    """The same of sequences of vectors (batch x length x features): positions at one end at which all is 0.

    Only of several lengths: a part that is 0 in all of them alike is meant to be filled, as what a decoder is
    to tell. And not of data that are often 0 elsewhere too, as pixels, keys of a piano, or nights.
    """
    if not batch.is_floating_point() or min(batch.shape) < 2:
        return 0.0, 0.0
    numbers = batch.detach() == 0
    empty = numbers.all(2)
    for ends in (empty, empty.flip(1)):
        runs = ends.flip(1).long().cumprod(1).sum(1)
        several = 0 < int(runs.max()) < ends.shape[1] and int(runs.min()) < int(runs.max())
        filled = numbers.numel() - int(runs.sum()) * batch.shape[2]
        within = int(numbers.sum()) - int(runs.sum()) * batch.shape[2]
        if several and int(runs.sum()) == int(ends.sum()) and within <= OFTEN * filled:
            return float(runs.sum()) / ends.numel(), float(runs.min()) / ends.shape[1]
    return 0.0, 0.0


def _runs(indices: torch.Tensor) -> tuple[float, float]:
    last = indices[:, -1].mode().values
    runs = (indices.flip(1) == last).long().cumprod(1).sum(1)
    only, total = float((runs == indices.shape[1]).float().mean()), int(runs.sum())
    elsewhere = int((indices == last).sum()) - total
    if only > OFTEN or int(runs.max()) < 2 or elsewhere > OFTEN * (indices.numel() - total):
        return 0.0, 0.0
    return total / indices.numel(), float(runs.min()) / indices.shape[1]
