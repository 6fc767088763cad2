"""Batches on their way to a device: one ahead, by a stream of its own, on CUDA."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from outpace.seams.batch import map_tensors
from outpace.serve.making import Arrival, Made
from outpace.serve.nests import each, leaves


def transferred(
    batches: Iterable[Made],
    device: torch.device | None,
    after: Callable[[Any], Any] | None = None,
) -> Iterator[Made]:
    """The batches on ``device``, where ``after`` is done on each; None leaves them as they are."""
    if device is None:
        yield from batches
        return
    arrival = Arrival(after)
    if device.type == "cuda":
        for made in _one_ahead(batches, device):
            yield arrival(made)
    else:
        for made in batches:
            yield arrival(made._replace(batch=each(made.batch, lambda leaf: _on(leaf, device))))


def _one_ahead(batches: Iterable[Made], device: torch.device) -> Iterator[Made]:
    """The next batch is copied while the step works on the one before."""
    if str(device) == "cuda":
        device = torch.device("cuda", torch.cuda.current_device())
    stream = _stream(device)
    coming: Made | None = None
    for made in batches:
        with torch.cuda.stream(stream):
            moved = each(made.batch, lambda leaf: _moved(leaf, device))
        if coming is not None:
            yield coming
        torch.cuda.current_stream(device).wait_stream(stream)
        # The memory is not given out again before the step is done with it.
        for leaf in leaves(moved):
            if dense(leaf) and leaf.is_cuda:  # lengths of sequences stay
                leaf.record_stream(torch.cuda.current_stream(device))
        coming = made._replace(batch=each(moved, lambda leaf: _by_itself(leaf, device)))
    if coming is not None:
        yield coming


@functools.cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """The same in each epoch: what was freed on a stream is only given out on it again."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _on(leaf: Any, device: torch.device) -> Any:
    return _by_itself(_moved(leaf, device), device)


def _moved(leaf: Any, device: torch.device) -> Any:
    # Elsewhere a copy may still read what the next batch is written to.
    at_once = device.type == "cuda"
    movable = dense(leaf) or isinstance(leaf, PackedSequence)
    return leaf.to(device, non_blocking=at_once) if movable else leaf


def dense(leaf: Any) -> bool:
    """Whether it is a tensor in memory of its own; of those of a sparse or nested one no stream is told."""
    return isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and not leaf.is_nested


def _by_itself(leaf: Any, device: torch.device) -> Any:
    """An object with a method for it, such as a graph or a sparse tensor: of what memory it takes nobody else
    knows, so this is for the stream of the step.
    """
    if dense(leaf) or isinstance(leaf, PackedSequence):
        return leaf
    to = getattr(leaf, "to", None)
    if callable(to):
        return to(device)
    return map_tensors(leaf, lambda each: each.to(device)) if is_dataclass(leaf) else leaf
