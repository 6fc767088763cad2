"""What a batch is: the tensors in a nest of containers, with the samples along the first dimension."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import fields
from dataclasses import is_dataclass as is_of_dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence


def map_tensors(value: Any, change: Any, *, dataclasses: bool = True) -> Any:
    """``change`` applied to every tensor in nested tuples, lists, dicts and what is like a dict.

    What is given stays as it is: it may be the script's own batch. ``dataclasses``: in them too, but for
    one inside of another, which may lead back.
    """
    if isinstance(value, torch.Tensor):
        return change(value)

    def mapped(item: Any) -> Any:
        return map_tensors(item, change, dataclasses=dataclasses)

    if isinstance(value, tuple):
        items = list(map(mapped, value))
        if all(one is other for one, other in zip(items, value, strict=True)):
            return value  # without tensors, as a torch.Size
        return tuple_like(value, items)
    if isinstance(value, list):
        if type(value) is list:
            return list(map(mapped, value))
        same_kind = copy.copy(value)
        same_kind[:] = map(mapped, value)
        return same_kind
    if isinstance(value, MutableMapping):
        found = {k: mapped(v) for k, v in value.items()}
        if type(value) is dict:
            return found
        copied = copy.copy(value)
        for key, item in found.items():
            copied[key] = item
        return copied
    if dataclasses and is_dataclass(value):
        copied = copy.copy(value)
        for name, item in fields_of(value).items():
            changed = map_tensors(item, change, dataclasses=False)
            object.__setattr__(copied, name, changed)  # it may be frozen
        return copied
    return value


def tuple_like(value: tuple[Any, ...], items: Iterable[Any]) -> tuple[Any, ...]:
    """Items as a tuple of the same class: a named one, one of torch's results, or one of the script's."""
    kind: Any = type(value)
    if kind is tuple:
        return tuple(items)
    if hasattr(kind, "_fields"):
        return kind(*items)  # type: ignore[no-any-return]
    if hasattr(kind, "n_fields"):
        return kind(tuple(items))  # type: ignore[no-any-return]
    made: tuple[Any, ...] = tuple.__new__(kind, items)
    getattr(made, "__dict__", {}).update(getattr(value, "__dict__", {}))  # it may have slots
    return made


@contextmanager
def changed_within(value: Any, change: Any) -> Iterator[Any]:
    """``value`` with ``change`` applied to its tensors for as long as it lasts, as a call's arguments.

    Lists and dicts stay the same ones, with other tensors in them meanwhile: what is called may write to
    them. Dataclasses are passed on as they are.
    """
    put: dict[int, tuple[Any, Any]] = {}
    holders: list[Any] = []

    def changed(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return change(value)
        if isinstance(value, tuple):
            items = list(map(changed, value))
            if all(one is other for one, other in zip(items, value, strict=True)):
                return value
            return tuple_like(value, items)
        if isinstance(value, (list, MutableMapping)):
            holders.append(value)
            for key, item in items_of(value):
                other = changed(item)
                if other is not item:
                    put[id(other)] = other, item
                    value[key] = other
        return value

    try:
        yield changed(value)
    finally:
        for holder in holders if put else ():
            for key, item in items_of(holder):
                if id(item) in put:
                    holder[key] = put[id(item)][1]


def items_of(value: Any) -> list[tuple[Any, Any]]:
    """A list's or dict's items, by index or key."""
    return list(value.items() if isinstance(value, MutableMapping) else enumerate(value))


def tensors_in(value: Any, *, dataclasses: bool = True) -> Iterator[torch.Tensor]:
    """The tensors in what ``map_tensors`` goes through, in their order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list, MutableMapping)):
        for item in value.values() if isinstance(value, MutableMapping) else value:
            yield from tensors_in(item, dataclasses=dataclasses)
    elif dataclasses and is_dataclass(value):
        for item in fields_of(value).values():
            yield from tensors_in(item, dataclasses=False)


def is_dataclass(value: Any) -> bool:
    """Whether a value is one of a dataclass that is no module."""
    return (
        is_of_dataclass(value)
        and not isinstance(value, type)
        and not isinstance(value, torch.nn.Module)
    )


def fields_of(value: Any) -> dict[str, Any]:
    """What a dataclass's fields hold, as far as they hold anything yet."""
    names = (field.name for field in fields(value))
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def to_float32(tensor: torch.Tensor) -> torch.Tensor:
    """A half-precision tensor in float32, so that a loss outside of the module keeps its range."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def first_tensor(value: Any) -> torch.Tensor | None:
    """The first tensor with a batch dimension in a nested batch, or among an object's attributes."""
    found = next((tensor for tensor in tensors_in(value) if tensor.dim()), None)
    if found is None and not isinstance(value, torch.nn.Module):
        own = tensors_in(list(getattr(value, "__dict__", {}).values()))
        found = next((tensor for tensor in own if tensor.dim()), None)
    return found


def batch_size(batch: Any) -> int:
    """Samples in a batch: the length of its first tensor, or of a list that has one for each sample; the
    number of packed sequences, or of graphs in one.
    """
    parts = batch if isinstance(batch, (tuple, list)) else ()
    for each in (batch, *parts):
        if isinstance(each, PackedSequence):
            return int(each.batch_sizes[0])
        if hasattr(type(each), "num_graphs"):  # of PyTorch Geometric
            return int(each.num_graphs)
    tensor, listed = first_tensor(batch), _listed(batch)
    if listed:
        return listed
    if tensor is not None and _time_first(tensor, batch):
        return tensor.size(1)
    return tensor.size(0) if tensor is not None else 1  # nested tensors have no shape


def _time_first(first: torch.Tensor, batch: Any) -> bool:
    """Whether samples lie along the second dimension of the first tensor, (steps, samples, features): lengths
    and targets beside it have so many, and nothing has as many as its first.
    """
    if first.is_nested or first.dim() < 3:
        return False
    sizes = [each.size(0) for each in tensors_in(batch) if each.dim()]
    return sizes.count(first.size(0)) == 1 and sizes.count(first.size(1)) > 1


def _listed(batch: Any) -> int:
    """Samples where each has a tensor of its own, as images of several sizes and what is in each
    (``zip(*samples)``); 0 where they are stacked.
    """
    if not isinstance(batch, (tuple, list)) or not batch:
        return 0
    if not all(isinstance(each, (tuple, list)) and len(each) == len(batch[0]) for each in batch):
        return 0
    ranks = {one.dim() if isinstance(one, torch.Tensor) else 0 for one in batch[0]}
    own = len(ranks) == 1 and 0 not in ranks and not scalable(batch)
    return len(batch[0]) if own else 0


def scalable(batch: Any) -> bool:
    """Whether a part of its samples can be taken: all of its tensors have them along the first dimension.

    What a class of the script's own makes of its tensors is not known.
    """
    plain = list(tensors_in(batch, dataclasses=False))
    if len(plain) < sum(1 for _ in tensors_in(batch)) or any(each.is_nested for each in plain):
        return False
    return len({tensor.shape[0] for tensor in plain if tensor.dim()}) == 1


def scale_batch(batch: Any, scale: float) -> Any:
    """A batch with ``scale`` times the samples: a part of it, or its samples repeated."""
    size = batch_size(batch)
    wanted = max(1, round(size * scale))

    def resize(tensor: torch.Tensor) -> torch.Tensor:
        resized = sized(tensor)
        return resized.pin_memory() if tensor.is_cpu and tensor.is_pinned() else resized

    def sized(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.dim() or tensor.shape[0] != size:
            return tensor
        if wanted <= size:
            return tensor[:wanted].clone()
        return torch.cat([tensor] * -(-wanted // size))[:wanted]

    return map_tensors(batch, resize)
