"""One batch made from indices: samples read, transformed with their own random numbers, collated.

What goes wrong with a sample is told with its index and its path, as a value: so it passes threads
and process borders alike.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import traceback
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, default_collate

from outpace.errors import DataError, OutpaceError
from outpace.measure.generators import generators_kept, moved, random_states
from outpace.serve.batches import by_slice, same_bits
from outpace.serve.nests import each, leaves
from outpace.serve.order import generator, seed_process
from outpace.serve.shelf import Shelf

LOOKED_AT = 6
"""samples that tell which generators are drawn from"""
OnError = Literal["raise", "skip"]
COMPARED = 512
"""of so many kept samples one is compared with its source in each epoch"""


class Request(NamedTuple):
    """A batch that is wanted: its samples' indices in an epoch."""

    epoch: int
    indices: NDArray[np.int64]


class Skipped(NamedTuple):
    """A sample that was left out, and why."""

    sample: int
    where: str
    reason: str


class Made(NamedTuple):
    """A batch; what was left out of it; or why there is none."""

    batch: Any
    skipped: tuple[Skipped, ...] = ()
    error: OutpaceError | None = None


class Arrival(NamedTuple):
    """What is done with a batch where it arrives in the training's own process.

    ``after``: last of all; ``pin``: into memory that a GPU can copy from. Neither is done in a worker
    process: CUDA does not bear to be used after a fork.
    """

    after: Callable[[Any], Any] | None = None
    pin: bool = False

    def __call__(self, made: Made) -> Made:
        """The batch as the training gets it."""
        if made.error is not None or (self.after is None and not self.pin):
            return made
        try:
            batch = made.batch if self.after is None else self.after(made.batch)
        except Exception as error:
            return Made(None, made.skipped, _with_trace(f"after: {_short(error)}", None))
        return made._replace(batch=each(batch, _pinned) if self.pin else batch)


class BatchMaker:
    """Makes batches of a source, here or in any thread or process, always the same.

    ``prepare``: what is always the same of a sample; ``transform``: called with what that gives, and
    with the sample's numpy Generator too if it takes two arguments.
    ``streams``: generators of the process that the samples draw from; they are seeded for each
    sample, so that threads cannot make batches at once.
    """

    def __init__(
        self,
        source: Any,
        *,
        seed: int,
        transform: Callable[..., Any] | None = None,
        prepare: Callable[[Any], Any] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        on_error: OnError = "raise",
    ) -> None:
        self.source, self.seed, self.on_error = source, seed, on_error
        self.prepare, self.transform = prepare, transform
        self.collate = collate or default_collate
        self.random = transform is not None and takes_two(transform)
        plain = prepare is None and transform is None and collate is None
        self.whole = plain and hasattr(source, "batch")
        self.sliced = plain and not self.whole
        self.shelf: Shelf | None = None
        self.streams: tuple[str, ...] = ()
        self.slices = False
        self._slicer: Callable[[Any], Any] | None = None

    def look(self) -> tuple[str, ...]:
        """Draw a few samples: which generators of the process do they draw from?"""
        size = 0 if self.whole else len(self.source)
        streams: set[str] = set()
        with generators_kept():
            for i in range(min(LOOKED_AT, size)):
                before = random_states()
                with contextlib.suppress(Exception):  # told of when its turn comes
                    self.sample(0, i * size // min(LOOKED_AT, size))
                streams |= moved(before, random_states())
        self.streams = tuple(sorted(streams))
        self.slices = self.sliced and not self.streams
        return self.streams

    def __call__(self, request: Request) -> Made:
        """Make one batch."""
        try:
            if self.whole:
                return Made(each(self.source.batch(request.indices), _tensor))
            if self.slices and (batch := self._slice(request)) is not None:
                return Made(batch)
        except OutpaceError as error:
            return Made(None, error=error)
        except Exception as error:
            return Made(None, error=self._told(int(request.indices[0]), error))
        return self._by_items(request)

    def _slice(self, request: Request) -> Any:
        """The batch in one piece; None, and never again, where that is not what the samples give."""
        try:
            if self._slicer is None:
                self._slicer = by_slice(DataLoader(self.source))
            return self._slicer(request.indices.tolist())
        except Exception:
            self.slices = False
            return None

    def _by_items(self, request: Request) -> Made:
        if not self.streams:
            return self._collated(request)
        with generators_kept():  # seeded for samples, these are the training's own
            return self._collated(request)

    def _collated(self, request: Request) -> Made:
        samples, skipped = [], []
        for index in request.indices.tolist():
            try:
                samples.append(self.sample(request.epoch, index))
            except Exception as error:
                told = self._told(index, error)
                if self.on_error == "raise":
                    return Made(None, error=told)
                skipped.append(Skipped(index, self.where(index), _short(error)))
        if not samples:
            first = skipped[0]
            message = f"none of the {len(skipped)} samples of a batch could be read"
            reason = f"the first, {first.where}: {first.reason}"
            return Made(None, tuple(skipped), DataError(message, reason))
        try:
            if self.shelf is not None:
                samples = each(samples, _own)
            return Made(self.collate(samples), tuple(skipped))
        except Exception as error:
            return Made(None, error=_with_trace(f"samples make no batch: {_short(error)}", None))

    def sample(self, epoch: int, index: int) -> Any:
        """One sample, transformed."""
        if self.streams:
            seed_process(self.seed, epoch, index)
        sample = self._kept(epoch, index) if self.shelf is not None else self.prepared(index)
        if self.transform is None:
            return sample
        if self.random:
            return self.transform(sample, generator(self.seed, epoch, index))
        return self.transform(sample)

    def prepared(self, index: int) -> Any:
        """One sample up to where it becomes random."""
        sample = self.source[index]
        return self.prepare(sample) if self.prepare is not None else sample

    def _kept(self, epoch: int, index: int) -> Any:
        """The same from the shelf; some are compared with the source in every epoch."""
        assert self.shelf is not None
        kept = self.shelf.get(index)
        if kept is not None and (index + epoch) % COMPARED:
            return kept
        sample = self.prepared(index)
        if kept is None:
            self.shelf.put(index, sample)
        elif not same_bits(kept, sample):
            self.shelf = None
            told = (
                f"{self.where(index)} is not as it was kept: kept samples are left out from here on"
            )
            print(f"outpace: {told}", file=sys.stderr)
        return sample

    def where(self, index: int) -> str:
        """A sample's path, where its source knows it."""
        tell = getattr(self.source, "where", None)
        return str(tell(index)) if callable(tell) else f"sample {index}"

    def _told(self, index: int, error: Exception) -> DataError:
        where, said = self.where(index), _short(error)
        if where not in said:
            number = "" if where == f"sample {index}" else f" (sample {index})"
            said = f"{where}{number}: {said}"
        return _with_trace(said, "on_error='skip' leaves such samples out and counts them")


def takes_two(transform: Callable[..., Any]) -> bool:
    """Whether a transform takes a generator besides the sample."""
    try:
        parameters = inspect.signature(transform).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    return len(needed) == 2


def bytes_of(batch: Any) -> int:
    """Bytes of what is in a batch; of a number, of its object."""
    return sum(
        leaf.nbytes
        if isinstance(leaf, torch.Tensor | np.ndarray)
        else len(leaf)
        if isinstance(leaf, bytes | str)
        else 8
        for leaf in leaves(batch)
    )


def _own(leaf: Any) -> Any:
    """A kept array is not to be written to, and torch knows no such tensors."""
    kept = isinstance(leaf, np.ndarray) and not leaf.flags.writeable
    return leaf.copy() if kept else leaf


def _pinned(leaf: Any) -> Any:
    return leaf.pin_memory() if isinstance(leaf, torch.Tensor) else leaf


def _tensor(leaf: Any) -> Any:
    numbers = isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biuf"
    return torch.from_numpy(leaf) if numbers else leaf


def _short(error: BaseException) -> str:
    return error.message if isinstance(error, OutpaceError) else f"{type(error).__name__}: {error}"


def _with_trace(message: str, hint: str | None) -> DataError:
    """An error that keeps where it came from over a process border."""
    told = DataError(message, hint)
    told.add_note(traceback.format_exc())
    return told
