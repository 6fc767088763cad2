"""Batches on their way from a worker process: small tensors behind one another, in one piece.

A tensor in shared memory of its own is a file that is made, sent and mapped: of a table with a hundred
columns that takes far longer than to make the batch. How the small ones lie, the layout, is pickled
by a worker once, and read once where it arrives. There each has memory of its own again: who keeps one
column of a batch keeps that alone.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data._utils.collate import default_collate_fn_map

from outpace.errors import DataError
from outpace.serve.pickled import is_simple, pickled, unpickled
from outpace.serve.places import Places

SMALL = 1 << 16
"""bytes of a tensor that is put together with others; of what goes through the pipe, not by shared memory"""
ALIGNED = 64
"""bytes at a multiple of which torch's own memory begins"""
GAP = torch.zeros(ALIGNED, dtype=torch.uint8)
SEGMENT_S, LEAF_S = 3e-4, 1.5e-5
"""of a tensor in shared memory, and of one among many in one piece: CPU seconds on both sides together, on
a busy machine of two cores"""
UNPICKLABLE = (pickle.PicklingError, AttributeError, TypeError)
NESTS = (torch.Tensor, dict, list, tuple)
NAMES = (
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
VIEWED = {getattr(torch, name): np.dtype(name) for name in NAMES} | {
    torch.bfloat16: np.dtype("int16")
}
"""types of tensors that lie together, and what numpy takes them for"""


class Joined(NamedTuple):
    """In the place of a tensor that lies with others: its type, its shape, its number among them.

    ``dims``: where each of its dimensions lies, if not in their order, as of channels_last.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    number: int
    dims: tuple[int, ...] | None = None


class Rest(NamedTuple):
    """In the place of anything else: its number among the others."""

    number: int


class Pickled(NamedTuple):
    """In the place of an object of another class: the number of its pickle among the others, its tensors."""

    number: int
    parts: tuple[Any, ...]


class Nest(NamedTuple):
    """In the place of a dict, list or tuple: its class, its keys, its parts."""

    kind: type
    keys: tuple[Any, ...] | None
    parts: tuple[Any, ...]


class Placed(NamedTuple):
    """Where joined tensors lie: the number of a place."""

    number: int


class Parcel(NamedTuple):
    """A batch on its way."""

    layout: bytes
    """pickled: how the batch is nested, and where each small tensor begins in ``joined``"""
    joined: torch.Tensor | NDArray[np.uint8] | Placed | None
    """tensors' bytes; a tensor goes by shared memory of its own, an array through the pipe"""
    rest: list[Any]


def always(size: int) -> bool:
    """There is room for so many bytes."""
    return True


def never(size: int) -> bool:
    """There is no room for so many bytes."""
    return False


@final
class Packer:
    """Makes parcels of batches. ``places``: for large ones; ``by_pipe``: all plain tensors go through the
    pipe, however large, and so do those of a batch that has more bytes than ``fits``.

    Those in shared memory need room there, which a container often has 64 MiB of.
    """

    def __init__(
        self,
        *,
        places: Places | None = None,
        by_pipe: bool = False,
        fits: Callable[[int], bool] = always,
    ) -> None:
        self.places, self.by_pipe, self.fits = places, by_pipe, fits
        self._nest: Any = None
        self._layout = b""
        self._order: list[tuple[int, int]] = []
        """numbers of the tensors that lie together, and how many bytes are left out before each"""

    def __call__(self, batch: Any) -> Parcel:
        """A batch as a parcel."""
        return self._placed(batch) or self._sent(batch)

    def _placed(self, batch: Any) -> Parcel | None:
        """All its plain tensors in a place; None where there is none, or for what is small."""
        if self.places is None:
            return None
        parts, rest = self._laid(batch, most=np.inf)
        size = sum(part.numel() for part in parts)
        if not SMALL < size <= self.places.size or (number := self.places.take()) is None:
            return None
        torch.cat(parts, out=self.places.memory[number, :size])
        return Parcel(self._layout, Placed(number), rest)

    def _sent(self, batch: Any) -> Parcel:
        by_pipe = self.by_pipe
        parts, rest = self._laid(batch, np.inf if by_pipe else SMALL, by_pipe)
        if not by_pipe:
            size = sum(part.numel() for part in parts) + sum(map(_large, rest))
            if size > SMALL and not self.fits(size):
                by_pipe = True
                parts, rest = self._laid(batch, np.inf, by_pipe)
        if not parts:
            return Parcel(self._layout, None, rest)
        joined = torch.cat(parts)
        piped = by_pipe or joined.numel() <= SMALL
        return Parcel(self._layout, joined.numpy() if piped else joined, rest)

    def _laid(
        self, batch: Any, most: float, by_pipe: bool = False
    ) -> tuple[list[torch.Tensor], list[Any]]:
        """Bytes of the tensors that lie together, of so many at most, in their order; and the rest."""
        together: list[torch.Tensor] = []
        rest: list[Any] = []
        nest = self._split(batch, most, by_pipe, together, rest)
        if nest != self._nest:
            self._lay(nest, together)
        parts = []
        for number, gap in self._order:
            if gap:
                parts.append(GAP[:gap])
            parts.append(together[number].flatten().view(torch.uint8))
        return parts, rest

    def _split(
        self, value: Any, most: float, by_pipe: bool, together: list[torch.Tensor], rest: list[Any]
    ) -> Any:
        def split(part: Any) -> Any:
            return self._split(part, most, by_pipe, together, rest)

        if _may_join(value, most, by_pipe):
            lying, dims = (value, None) if value.is_contiguous() else _as_it_lies(value)
            together.append(lying)
            return Joined(value.dtype, tuple(lying.shape), len(together) - 1, dims)
        if isinstance(value, torch.Tensor):
            rest.append(_without_history(value))
            return Rest(len(rest) - 1)
        kind = type(value)
        if kind is dict:
            return Nest(dict, tuple(value), tuple(map(split, value.values())))
        # A list of names or numbers is one thing; so is one that knows more than its parts.
        several = isinstance(value, list | tuple) and not getattr(value, "__dict__", None)
        if several and any(isinstance(part, NESTS) for part in value):
            return Nest(kind, None, tuple(map(split, value)))
        number = len(rest)
        if is_simple(value):
            rest.append(value)
            return Rest(number)
        data, tensors = pickled(value)
        rest.append(data)
        return Pickled(number, tuple(map(split, tensors)))

    def _lay(self, nest: Any, together: list[torch.Tensor]) -> None:
        """The widest types first: so each number lies where one of its type may.

        A tensor that stays where it lies begins where torch would have it begin: a matrix product of the
        same numbers may end in other bits where they begin elsewhere.
        """
        order, starts, at = list[tuple[int, int]](), [0] * len(together), 0
        for number in sorted(range(len(together)), key=lambda n: -together[n].element_size()):
            size = together[number].nbytes
            gap = -at % ALIGNED if size > SMALL else 0
            order.append((number, gap))
            starts[number] = at + gap
            at += gap + size
        self._layout = pickle.dumps((nest, starts))
        self._nest, self._order = nest, order


def _may_join(value: Any, most: float, by_pipe: bool) -> bool:
    if type(value) is not torch.Tensor or value.dtype not in VIEWED:
        return False
    plain = value.device.type == "cpu" and value.layout is torch.strided
    if not plain or value.requires_grad or value.is_neg() or value.is_conj():
        return False
    return by_pipe or (value.nbytes <= most and value.is_contiguous())


def _as_it_lies(value: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...] | None]:
    """The tensor with its dimensions in the order in which they lie, and where each then is; as it is where
    it has gaps.
    """
    order = sorted(range(value.dim()), key=lambda dim: -value.stride()[dim])
    lying = value.permute(order)
    dims = tuple(order.index(dim) for dim in range(value.dim()))
    return (lying, dims) if lying.is_contiguous() else (value, None)


def _without_history(value: torch.Tensor) -> torch.Tensor:
    """A tensor as it is. Raises DataError for one that gradients go back through: those end where its
    process ends.
    """
    if value.grad_fn is not None:
        raise DataError("gradients go back through a tensor in it", "make it under torch.no_grad()")
    return value


def _large(one: Any) -> int:
    """Bytes of a tensor that goes by shared memory of its own."""
    return one.nbytes if isinstance(one, torch.Tensor) and one.layout is torch.strided else 0


_layout_of = lru_cache(maxsize=64)(pickle.loads)


def unpacked(parcel: Parcel, *, own: bool = True, places: Places | None = None) -> Any:
    """The batch again. ``own``: each of its tensors with memory of its own, which is a copy; but for
    large ones in ``places``, which stay there.
    """
    nest, starts = _layout_of(parcel.layout)
    if parcel.joined is None:
        leaf: Callable[[Joined], torch.Tensor] | None = None
    elif isinstance(parcel.joined, Placed):
        assert places is not None
        leaf = _from_bytes(places.lend(parcel.joined.number), starts, most=SMALL)
    elif own or isinstance(parcel.joined, np.ndarray):
        leaf = _from_bytes(
            np.asarray(parcel.joined), starts, most=np.inf if len(starts) > 1 else -1
        )
    else:
        leaf = _from_pinned(parcel.joined, starts)
    return _built(nest, leaf, parcel.rest)


def _from_bytes(joined: Any, starts: list[int], *, most: float) -> Callable[[Joined], torch.Tensor]:
    """``most``: bytes of those that are copied."""

    def leaf(small: Joined) -> torch.Tensor:
        found = np.ndarray(small.shape, VIEWED[small.dtype], joined, starts[small.number])
        tensor = torch.from_numpy(found.copy() if found.nbytes <= most else found)
        tensor = tensor.view(small.dtype) if small.dtype is torch.bfloat16 else tensor
        return tensor if small.dims is None else tensor.permute(small.dims)

    return leaf


def _from_pinned(joined: torch.Tensor, starts: list[int]) -> Callable[[Joined], torch.Tensor]:
    def leaf(small: Joined) -> torch.Tensor:
        begin = starts[small.number]
        size = int(np.prod(small.shape, dtype=np.int64)) * small.dtype.itemsize
        return joined[begin : begin + size].view(small.dtype).view(small.shape)

    return leaf


def _built(nest: Any, leaf: Any, rest: list[Any]) -> Any:
    if isinstance(nest, Joined):
        return leaf(nest)
    if isinstance(nest, Rest):
        return rest[nest.number]
    parts = [_built(part, leaf, rest) for part in nest.parts]
    if isinstance(nest, Pickled):
        return unpickled(rest[nest.number], parts)
    if nest.keys is not None:
        return dict(zip(nest.keys, parts, strict=True))
    return nest.kind(*parts) if hasattr(nest.kind, "_fields") else nest.kind(parts)


def crossing_s(batch: Any) -> float:
    """Seconds that a batch's tensors take on their way, besides their bytes; infinite for a batch that
    cannot be pickled.
    """
    try:
        parts, rest = Packer()._laid(batch, most=np.inf)
    except (*UNPICKLABLE, DataError):
        return math.inf
    segments = sum(isinstance(one, torch.Tensor) for one in rest)
    return SEGMENT_S * segments + LEAF_S * len(parts)


def check_picklable(batch: Any) -> None:
    """Raises what pickling a batch raises, but for its tensors: a queue between processes would lose the
    batch without a word, and who waits for it would wait for ever.
    """
    Packer()._laid(batch, most=np.inf)


def stacked_in_own_memory(fits: Callable[[int], bool] = never) -> None:
    """Have `default_collate` make batches in this worker's own memory, not in shared memory, but for those
    whose bytes it ``fits``.
    """
    plain = default_collate_fn_map[torch.Tensor]

    def stack(batch: Any, *, collate_fn_map: Any = None) -> Any:
        for one in batch:
            if type(one) is not torch.Tensor or one.layout is not torch.strided or one.is_nested:
                return plain(batch, collate_fn_map=collate_fn_map)
        if fits(sum(one.nbytes for one in batch)):
            return plain(batch, collate_fn_map=collate_fn_map)
        return torch.stack(batch, 0)

    default_collate_fn_map[torch.Tensor] = stack
