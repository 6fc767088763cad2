"""One batch made from indices: samples read, transformed with their own random numbers, collated.

What goes wrong with a sample is told with its index and its path, as a value: so it passes threads
and process borders alike.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import PackedSequence
from torch.utils.data import DataLoader, TensorDataset

from outpace.errors import DataError, OutpaceError
from outpace.seams.generators import moved, states_taken
from outpace.seams.host import on_stderr
from outpace.serve.batches import Slices, same_bits
from outpace.serve.changes import state_of
from outpace.serve.collated import collated
from outpace.serve.held import all_kept, held_by, seed_all
from outpace.serve.leaf_bytes import leaf_bytes
from outpace.serve.nests import each, leaves
from outpace.serve.one_thread import one_thread
from outpace.serve.open_files import Unopened
from outpace.serve.order import generator
from outpace.serve.shelf import Shelf, kept_and_read
from outpace.serve.telling import of_sample, place_of, short, with_trace
from outpace.serve.worker_seeds import text_of

LOOKED_AT = 6
"""samples that tell which generators are drawn from"""
OnError = Literal["raise", "skip"]
COMPARED = 512
"""of so many kept samples one is compared with its source in each epoch"""


class Request(NamedTuple):
    """A batch that is wanted: its samples' indices in an epoch, and which copy of its sample each is, where
    samples come several times.
    """

    epoch: int
    indices: NDArray[np.int64]
    copies: NDArray[np.int64] | None = None


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
            return Made(None, made.skipped, with_trace(f"after: {short(error)}"))
        return made._replace(batch=each(batch, _pinned) if self.pin else batch)


class BatchMaker:
    """Makes batches of a source, here or in any thread or process, always the same.

    ``prepare``: what is always the same of a sample; ``transform``: called with what that gives, and
    with the sample's numpy Generator too if it takes two arguments.
    ``streams``: generators of the process, and of the data set's own, that the samples draw from; they
    are seeded for each sample, so that threads cannot make batches at once.
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
        self.collate = collate or collated
        self.random = transform is not None and takes_two(transform)
        plain = prepare is None and transform is None and collate is None
        self.whole = plain and getattr(type(source), "gives_batches", False) is True
        self.sliced = plain and not self.whole
        self.copied = plain and (self.whole or type(source) is TensorDataset)
        """nothing is computed on the way"""
        self.shelf: Shelf | None = None
        self.streams: tuple[str, ...] = ()
        self.held: dict[str, Any] = {}
        """those that are not the process's"""
        self.held_in = os.getpid()
        """in which they were found"""
        self.unopened: Unopened | None = None
        """the source as worker processes are to find it, and while samples are looked at before they begin"""
        self.slices = False
        self._slices: Slices | None = None
        self._sliced_in = 0
        """epoch of the batch that was sliced last"""

    def __getstate__(self) -> dict[str, Any]:
        # What another process makes anew.
        return {**self.__dict__, "_slices": None, "unopened": None}

    def draws_more(self, after: Callable[[Any], Any] | None = None) -> bool:
        """Whether samples draw from more generators than when they were looked at; if not, all is as it was:
        others may be of samples that are not looked at.
        """
        before = self.streams, self.held, self.slices
        if not set(self.look(after)) <= set(before[0]):
            return True
        self.streams, self.held, self.slices = before
        return False

    def find_held(self, *, by_drawing: bool = False) -> None:
        """Find the generators that samples draw from as they are now: a script may have put others in their
        place, and ``by_drawing`` a sample a process makes those that come with the first.
        """
        if not self.held:
            return
        if by_drawing:
            with contextlib.suppress(Exception):  # told of when its turn comes
                self.sample(0, 0)
        found = self._all_held()
        self.held = {name: found.get(name, one) for name, one in self.held.items()}
        self.held_in = os.getpid()

    def _all_held(self, after: Callable[[Any], Any] | None = None) -> dict[str, Any]:
        return held_by(
            source=self.source,
            prepare=self.prepare,
            transform=self.transform,
            collate=self.collate,
            after=after,
        )

    def state(self) -> int | None:
        """A number that is another one once something that samples are made by has changed; None where
        that cannot be told.
        """
        return state_of(self.source, self.prepare, self.transform, self.collate)

    def look(self, after: Callable[[Any], Any] | None = None) -> tuple[str, ...]:
        """Draw a few samples: which generators do they draw from, alone and put together? ``after``: what
        is done with a batch where it was made.
        """
        self.streams, self.held = (), {}
        if self.whole and after is None:
            return ()  # a store of ours: nothing in it is drawn by chance
        size, streams = len(self.source), set[str]()
        held = self._all_held(after)
        looked_at = [i * size // min(LOOKED_AT, size) for i in range(min(LOOKED_AT, size))]

        def together() -> None:
            some = looked_at[:2]
            if self.whole:
                batch = self._whole(np.array(some))
            else:
                batch = self.collate([self.sample(0, index) for index in some])
            if after is not None:
                after(batch)

        tries: list[Callable[[], Any]] = []
        if not self.whole:
            tries += [partial(self.sample, 0, index) for index in looked_at]
        if after is not None or self.collate is not collated:
            tries.append(together)
        with one_thread(), all_kept(held):
            for draw in tries:
                before, own = states_taken(), {name: text_of(held[name]) for name in held}
                with contextlib.suppress(Exception):  # told of when its turn comes
                    draw()
                streams |= moved(before, states_taken())
                streams |= {name for name in held if text_of(held[name]) != own[name]}
        known, held = {id(one) for one in held.values()}, self._all_held(after)
        # One that is made with the first sample is there to be drawn from.
        streams |= {name for name, one in held.items() if id(one) not in known}
        self.streams = tuple(sorted(streams))
        # All of them where one is drawn from: others may be of samples that were not looked at.
        drawn = streams.intersection(held)
        self.held = {name: held[name] for name in sorted(held)} if drawn else {}
        self.slices = self.sliced and not self.streams
        return self.streams

    def __call__(self, request: Request) -> Made:
        """Make one batch, on one of torch's threads."""
        if self.held and os.getpid() != self.held_in:
            self.find_held(by_drawing=True)
        with contextlib.nullcontext() if self.copied else one_thread():
            return self._made(request)

    def _made(self, request: Request) -> Made:
        try:
            if self.whole:
                return Made(self._whole(request.indices))
            if self.slices and (batch := self._slice(request)) is not None:
                return Made(batch)
        except Exception as error:
            return self._but_for_bad(request, error)
        return self._by_items(request)

    def _whole(self, indices: NDArray[np.int64]) -> Any:
        return each(self.source.batch(indices), _tensor)

    def _but_for_bad(self, request: Request, error: Exception) -> Made:
        """A batch of a source that gives it whole and failed to: which of its samples cannot be read?"""
        good, skipped = [], []
        for index in request.indices.tolist():
            try:
                self._whole(np.array([index]))
                good.append(index)
            except Exception as its_own:
                if self.on_error == "raise":
                    return Made(None, error=self._told(index, its_own))
                skipped.append(Skipped(index, self.where(index), short(its_own)))
        if not good:
            return _nothing(skipped)
        try:
            if not skipped:
                raise error
            return Made(self._whole(np.array(good)), tuple(skipped))
        except Exception as together:
            return Made(None, error=with_trace(f"samples make no batch: {short(together)}"))

    def _slice(self, request: Request) -> Any:
        """The batch in one piece; None, and never again, where that is not what the samples give."""
        try:
            if self._slices is None:
                self._slices = Slices(DataLoader(self.source))
            if request.epoch != self._sliced_in:
                self._slices.new_epoch()
                self._sliced_in = request.epoch
            return self._slices.fetch(request.indices.tolist())
        except Exception:
            self.slices = False
            return None

    def _by_items(self, request: Request) -> Made:
        if not self.streams:
            return self._collated(request)
        with all_kept(self.held):  # seeded for samples, they are the training's own
            return self._collated(request)

    def _collated(self, request: Request) -> Made:
        samples, indices, skipped = [], [], []
        asked = request.indices.tolist()
        copies = request.copies.tolist() if request.copies is not None else [0] * len(asked)
        drawn = self._drawn_at_once(asked)
        if drawn is not None and self.prepare is None and self.transform is None:
            with contextlib.suppress(Exception):  # which of them makes no batch is told below
                return Made(self.collate(drawn))
        if not (isinstance(drawn, list) and len(drawn) == len(asked)):
            drawn = None
        for place, (index, copy) in enumerate(zip(asked, copies, strict=True)):
            try:
                if drawn is None:
                    samples.append(self.sample(request.epoch, index, copy))
                else:
                    prepared = self._prepared(drawn[place])
                    samples.append(self._transformed(request.epoch, index, copy, prepared))
                indices.append(index)
            except Exception as error:
                told = self._told(index, error)
                if self.on_error == "raise":
                    return Made(None, error=told)
                skipped.append(Skipped(index, self.where(index), short(error)))
        if not samples:
            return _nothing(skipped)
        try:
            return Made(self.collate(samples), tuple(skipped))
        except Exception as error:
            return Made(None, error=self._unlike(indices, samples, error))

    def _unlike(self, indices: list[int], samples: list[Any], error: Exception) -> DataError:
        """Of samples that make no batch: which of them makes none with the first?"""
        for index, sample in zip(indices[1:], samples[1:], strict=True):
            try:
                self.collate([samples[0], sample])
            except Exception as its_own:
                both = f"{self.where(index)} makes no batch with {self.where(indices[0])}"
                return with_trace(f"{both}: {short(its_own)}")
        return with_trace(f"samples make no batch: {short(error)}")

    def _drawn_at_once(self, indices: list[int]) -> Any:
        """What a source gives that draws several samples together, for collate as DataLoader has it; None of
        others, and where one of them cannot be read: which it is shows one by one.
        """
        many = getattr(self.source, "__getitems__", None)
        if many is None or self.streams or self.shelf is not None:
            return None
        try:
            return many(indices)
        except Exception:
            return None

    def sample(self, epoch: int, index: int, copy: int = 0) -> Any:
        """One sample, transformed."""
        if self.streams:
            seed_all(self.seed, epoch, index, self.held, copy)
        shelf = self.shelf  # one look: another thread may take it away
        sample = self._kept(shelf, epoch, index) if shelf is not None else self.prepared(index)
        return self._transformed(epoch, index, copy, sample)

    def prepared(self, index: int) -> Any:
        """One sample up to where it becomes random."""
        return self._prepared(self.source[index])

    def _prepared(self, sample: Any) -> Any:
        return self.prepare(sample) if self.prepare is not None else sample

    def _transformed(self, epoch: int, index: int, copy: int, sample: Any) -> Any:
        if self.transform is None:
            return sample
        if self.random:
            return self.transform(sample, generator(self.seed, epoch, index, copy))
        return self.transform(sample)

    def _kept(self, shelf: Shelf, epoch: int, index: int) -> Any:
        """The same from the shelf; some are compared with the source in every epoch."""
        kept = shelf.get(index)
        if kept is not None and (index + epoch) % COMPARED:
            return kept
        sample = self.prepared(index)
        if kept is None:
            shelf.put(index, sample)
        elif not same_bits(kept, kept_and_read(sample)):
            shelf.give_up()
            self.shelf = None
            on_stderr(
                f"outpace: {self.where(index)} is not as it was kept: kept samples are left out from here on"
            )
        return sample

    def where(self, index: int) -> str:
        """A sample's path, where its source knows it."""
        return place_of(self.source, index) or f"sample {index}"

    def _told(self, index: int, error: Exception) -> DataError:
        return of_sample(self.where(index), index, error)


def _nothing(skipped: Sequence[Skipped]) -> Made:
    """A batch of which all is left out."""
    first = skipped[0]
    message = f"none of the {len(skipped)} samples of a batch could be read"
    return Made(
        None, tuple(skipped), DataError(message, f"the first, {first.where}: {first.reason}")
    )


def takes_two(transform: Callable[..., Any]) -> bool:
    """Whether a transform takes a generator besides the sample."""
    try:
        parameters = inspect.signature(transform).parameters.values()
    except (TypeError, ValueError):
        return False
    given = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in given if p.default is p.empty]
    return len(needed) == 2 or (len(needed) < 2 <= len(given) and given[1].name == "rng")


def bytes_of(batch: Any) -> int:
    """Bytes of what is in a batch."""
    return leaf_bytes(*leaves(batch))


def _pinned(leaf: Any) -> Any:
    """In page-locked memory, but for what is on a device already, or sparse."""
    held = leaf.data if isinstance(leaf, PackedSequence) else leaf
    plain = isinstance(held, torch.Tensor) and held.is_cpu and held.layout is torch.strided
    return leaf.pin_memory() if plain else leaf


def _tensor(leaf: Any) -> Any:
    numbers = isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biufc"
    return torch.from_numpy(leaf) if numbers else leaf
