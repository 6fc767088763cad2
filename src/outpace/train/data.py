"""Where the Trainer's batches come from, and how it goes on in the middle of an epoch.

What has a ``state_dict`` (outpace.Loader, a stateful DataLoader) goes on by it. Of anything else the
random state at the epoch's begin is kept: the epoch is begun from it again and the batches that were
seen are passed over, which takes as long as drawing them. That gives the same batches wherever they
depend on this process's generators alone: not where persistent workers of a DataLoader draw numbers, and
not where a source has kept what it drew on the way, as a buffer that shuffles does, from the generator that
dropout draws from as well: what is passed over is drawn without dropout's numbers in between.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from outpace.errors import UsageError
from outpace.measure.generators import random_states, restore_random
from outpace.seams.batch import map_tensors, tensors_in
from outpace.seams.generators import generators_kept
from outpace.serve.loader import Loader
from outpace.serve.nests import each
from outpace.train import ranks
from outpace.train.at_sample import begun_at, sampled, seed_drawn

HELD_BYTES, FEWEST_HELD = 256 * 2**20, 4
"""of batches that are looked at before the training; so many whatever they take: three to learn from, and one
to judge by
"""
OWN, NOW = "own", "now"
"""states of a source's own generators, where the epoch began and where training is"""


@final
class Together(list[Any]):
    """Batches whose gradients make one step."""


@final
class Batches:
    """Batches of ``source``, epoch after epoch, on ``device``."""

    def __init__(self, source: Iterable[Any], device: torch.device, *, own: bool = False) -> None:
        if once := gone_through_once(source):
            raise UsageError(
                f"a {type(once).__name__} can be gone through once only, and training does so "
                "again and again",
                "give a data set, a DataLoader or a list of batches; of a stream __iter__ is to begin anew",
            )
        self.source, self.device, self.own = source, device, own
        self.world = 1
        """ranks that draw together"""
        self.together = 1
        """batches of the source in one step: more than one are given as `Together`"""
        self.stateful = hasattr(source, "state_dict") and hasattr(source, "load_state_dict")
        self.seen: Sequence[Any] = ()
        """batches that were drawn before, which looks are at then: drawing others may take long"""
        self.exact = is_exact(source)
        """an epoch has as many batches as the source's length tells"""
        self.counted: int | None = None
        """else those of the last epoch, once there was one"""
        self.most: int | None = None
        """batches of an epoch that are drawn, where it is not all of them"""
        self.epochs = self.drawn = 0
        """epochs begun; batches of the source drawn of this one"""
        self.under_way = False
        """an epoch was begun and not finished"""
        self.passed = (0, 0)
        """samples and batches of it that came before, where it is gone on with inside of a batch"""
        self._coming: Iterator[Any] = iter(())
        """from the source"""
        self._resized = False
        """its batches have had another size since they were begun"""
        self.generators = generators_of(source)
        self._random: dict[str, Any] | None = None
        """states of the generators where this epoch began, the source's own included"""
        self._goes_on = self._looked_at = False
        """an epoch is gone on with; source was gone through"""
        self._drew = True
        """a DataLoader drew a seed for its workers when the epoch at hand began"""

    @property
    def shared(self) -> bool:
        """Whether each of several ranks has its own part of the samples, as far as is known."""
        by_rank = (getattr(each, "num_replicas", 1) for each in samplers_of(self.source))
        return isinstance(self.source, Loader) or self.stateful or max(by_rank) > 1

    @property
    def samples(self) -> tuple[int, int] | None:
        """That a DataLoader's sampler gave of this epoch, and all of it, where that is known."""
        found = sampled(self.source)
        if found is None:
            return None
        samples, batches = self.passed
        return min(found.total, samples + (self.drawn - batches) * found.size), found.total

    @property
    def whole(self) -> int | None:
        """Batches of the source in an epoch, where that is known; about so many unless it is `exact`."""
        whole = self.counted or told_length(self.source)
        return whole if whole is None or self.most is None else min(whole, self.most)

    def worth(self, other: Batches) -> float:
        """Batches of ``other`` that an epoch of these is worth, by their samples where those are known."""
        own, others = (getattr(each.source, "batch_size", None) for each in (self, other))
        times = own / others if isinstance(own, int) and isinstance(others, int) else 1.0
        return times * (self.whole or 0)

    @property
    def told(self) -> bool:
        """Whether it is known how many steps an epoch has: of several ranks all have as many then."""
        return self.exact and self.whole is not None

    @property
    def length(self) -> int | None:
        """Steps of an epoch, where that is known."""
        return None if self.whole is None else -(-self.whole // self.together)

    @property
    def left(self) -> int | None:
        """Steps that are left of the epoch under way, or of the next one."""
        if self.whole is None:
            return None
        left = max(0, self.whole - self.drawn * self.under_way)
        return -(-left // self.together)

    @property
    def at_end(self) -> bool:
        """Whether the epoch's last batch was drawn, as far as is known."""
        return self.exact and self.drawn == self.whole

    def epoch(self) -> Iterator[Any]:
        """The batches of an epoch, or those that are left of it after `load_state_dict`."""
        self._resized = True
        while self._resized:
            self._resized = False
            yield from self._ready()
        self.under_way = False
        if not self.exact:
            self.counted = self.drawn

    def _ready(self) -> Iterator[Any]:
        """As long as they have one size: on the device, and together."""
        batches = self._coming = self._begun()
        if self.device.type != "cpu":
            batches = (each(batch, self._moved) for batch in batches)
        if self.together > 1:
            batches = self._joined(batches)
        for batch in itertools.islice(batches, self.most):
            self.drawn += 1
            yield batch

    def _begun(self) -> Iterator[Any]:
        going_on, self._goes_on = self._goes_on, False
        if not going_on:
            self.epochs, self.drawn, self.under_way = self.epochs + 1, 0, True
            self.passed = (0, 0)
        self._tell_epoch()
        if self.most is not None and isinstance(self.source, Loader):
            self.source.leave()  # of the epoch before some batches were not drawn
        if self.stateful:
            # It goes on with its own state; what it draws for its workers was drawn before.
            draws = going_on and not isinstance(self.source, Loader)
            with generators_kept(*self.generators) if draws else nullcontext():
                return iter(self.source)
        if not going_on or self._random is None:
            self._random = {**random_states(), OWN: self._states()}
            self._drew, self._looked_at = self._draws, True
            return iter(self.source)
        with generators_kept(*self.generators):
            if not self._drew and getattr(self.source, "persistent_workers", False):
                iter(self.source)  # it draws a seed the first time
                self._looked_at = True
            restore_random(self._random)
            self._restore(self._random.get(OWN))
            inside = self.passed[0]
            with seed_drawn(self.source, self._drew, draws=bool(inside) or self._draws):
                if inside:
                    return begun_at(self.source, inside)  # type: ignore[arg-type]
                batches = iter(self.source)
            self._looked_at = True
            for _ in range(self.drawn):
                next(batches, None)
        return batches

    @property
    def _draws(self) -> bool:
        """Whether a DataLoader would draw a seed for its workers now: those that last have theirs."""
        begun = self._looked_at or getattr(self.source, "_iterator", None) is not None
        return not (begun and getattr(self.source, "persistent_workers", False))

    def _states(self) -> list[torch.Tensor]:
        """Of the source's own generators."""
        return [generator.get_state() for generator in self.generators]

    def _restore(self, states: Sequence[torch.Tensor] | None) -> None:
        """Put them back."""
        for generator, state in zip(self.generators, states or (), strict=False):
            generator.set_state(state)

    def _tell_epoch(self) -> None:
        """To those of a DataLoader that order samples by it."""
        for sampler in {id(one): one for one in samplers_of(self.source)}.values():
            set_epoch = getattr(sampler, "set_epoch", None)
            if set_epoch is not None:
                set_epoch(self.epochs - 1)

    def _joined(self, batches: Iterator[Any]) -> Iterator[Together]:
        """So many together; what is left at the end of an epoch makes a step of fewer.

        No more are asked for than there are: at its end a source is already in the next epoch.
        """
        while True:
            left = (self.whole or 0) - self.drawn if self.exact else 0
            count = min(self.together, left) if left > 0 else self.together
            some = Together(itertools.islice(batches, count))
            if not some:
                return
            self.drawn += len(some) - 1
            yield some

    def _moved(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            # Others may fill a batch's memory again while it is still being copied; but for CUDA the copy may
            # read what was freed meanwhile, too.
            fresh = isinstance(self.source, (Loader, DataLoader)) and self.device.type == "cuda"
            return leaf.to(self.device, non_blocking=fresh)
        # What a collate function makes, such as the BatchEncoding of transformers, may know how.
        if callable(getattr(leaf, "to", None)):
            return leaf.to(self.device)
        return map_tensors(leaf, self._moved) if is_dataclass(leaf) else leaf

    def peek(
        self, count: int, go_on: Callable[[list[Any]], bool] = lambda found: True
    ) -> list[Any]:
        """Some batches of an epoch, as if none had been drawn; no more where ``go_on`` tells not to."""
        if self.seen:
            return taken(self.seen, count, go_on)
        if isinstance(self.source, Loader):
            self.source.leave()  # else what another training had left of an epoch would be gone on with
        self._looked_at = True
        with generators_kept(*self.generators):
            state = self.source.state_dict() if self.stateful else None  # type: ignore[attr-defined]
            batches = iter(self.source)
            # Whether to go on is asked of all ranks at once.
            drawn = (
                batches if self.world == 1 or self.told else ranks.while_all(batches, self.device)
            )
            found = taken((each(batch, self._moved) for batch in drawn), count, go_on)
            if hasattr(batches, "close"):
                batches.close()
        if self.stateful:
            self.source.load_state_dict(state)  # type: ignore[attr-defined]
        return found

    def resize(self, samples: int) -> None:
        """Have a Loader's batches be of so many samples, from the next one on."""
        loader = self.source
        assert isinstance(loader, Loader)
        if isinstance(self._coming, Generator):
            self._coming.close()
        loader.resize(samples)
        if self.under_way:
            loader.load_state_dict(loader.state_dict())  # its next iteration is no new epoch
            self.drawn = len(loader) - loader.left
            self._resized = self._goes_on = True

    def lasts(self, epochs: float | None, seconds: float | None) -> None:
        """Tell a Loader how long the training will be."""
        if isinstance(self.source, Loader):
            self.source.lasts(epochs, seconds)

    def single_left_out(self, *, sizes: bool) -> str:
        """Have no batch of a loader that was made here be a single sample, of which BatchNorm can't tell
        the variance; what is left out for that. ``sizes``: batches will have others.
        """
        loader = self.source
        if not (self.own and isinstance(loader, Loader)) or loader.order.size <= loader.world:
            return ""
        loader.drop_single = True
        single = 0 < loader.order.size % (loader.batch_size * loader.world) <= loader.world
        if not (single or sizes):
            return ""
        left = "is" if single else "would be"
        return f"BatchNorm: a last batch of one sample {left} left out of an epoch"

    def close(self) -> None:
        """End the workers of a loader that was made here."""
        if self.own:
            self.source.close()  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, Any]:
        """Where in the data training is."""
        own = {
            "epochs": self.epochs,
            "drawn": self.drawn,
            "under_way": self.under_way,
            "length": told_length(self.source),
            "counted": self.counted,
            "samples": self.samples,
        }
        if self.stateful:
            return {**own, "source": self.source.state_dict()}  # type: ignore[attr-defined]
        random = self._random and {**self._random, NOW: self._states()}
        return {**own, "random": random, "drew": self._drew}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there in the next `epoch`. With another batch size a Loader and a DataLoader do so with
        the very next sample, a Loader with other ranks too; all else goes on with the nearest batch.
        """
        self.epochs, self.drawn = state["epochs"], state["drawn"]
        self.under_way = self._goes_on = state["under_way"]
        now, before = sampled(self.source), state["samples"]
        length = told_length(self.source)
        times = length / state["length"] if length and state["length"] else 1.0
        counted = state.get("counted")
        self.counted = counted and round(counted * times)
        if self.stateful and "source" in state:
            self.source.load_state_dict(state["source"])  # type: ignore[attr-defined]
        if isinstance(self.source, Loader) and self.under_way:
            self.drawn = len(self.source) - self.source.left
        elif now is not None and before is not None and now.total == before[1] and self.under_way:
            samples = before[0]
            self.drawn = now.batches(now.total) - now.batches(now.total - samples)
            inside = samples < now.total and samples % now.size
            self.passed = (samples, self.drawn) if inside else (0, 0)
        else:
            self.drawn = round(self.drawn * times)
        self._random, self._drew = state.get("random"), state.get("drew", True)
        if self._random is not None:
            self._restore(self._random.get(NOW))


def taken(batches: Iterable[Any], count: int, go_on: Callable[[list[Any]], bool]) -> list[Any]:
    """The first ones, at most ``count``; no more where ``go_on`` tells not to."""
    found: list[Any] = []
    for batch in itertools.islice(batches, count):
        found.append(batch)
        if not go_on(found):
            break
    return found


def fresh(batch: Any) -> Any:
    """A copy of it, for a model or a loss that may write to what it is given."""
    return map_tensors(batch, torch.Tensor.clone)


@final
class Fresh(list[Any]):
    """Batches that are gone through again and again, and are as they were each time."""

    def __iter__(self) -> Iterator[Any]:
        return map(fresh, super().__iter__())


def samplers_of(source: Any) -> tuple[Any, ...]:
    """A DataLoader's, None where it has none of a kind."""
    by_batch = getattr(source, "batch_sampler", None)
    return getattr(source, "sampler", None), by_batch, getattr(by_batch, "sampler", None)


def generators_of(source: Any) -> list[torch.Generator]:
    """Those that a DataLoader and its samplers draw the order of samples from."""
    by_batch = getattr(source, "batch_sampler", None)
    holders = (
        source,
        getattr(source, "sampler", None),
        by_batch,
        getattr(by_batch, "sampler", None),
    )
    found = [getattr(each, "generator", None) for each in holders]
    own = {id(each): each for each in found if isinstance(each, torch.Generator)}
    return list(own.values())


def batches(
    source: Any,
    batch_size: int | None,
    device: torch.device,
    **settings: Any,
) -> Batches:
    """Batches of a data set by a Loader of ours, or of what gives ready batches as it is.

    Ready are: a DataLoader, a Loader, whatever can be gone through but not indexed, and, where
    ``batch_size`` is None, anything. A tuple of tensors is a data set of their rows. ``settings`` are
    the Loader's.
    """
    if is_ready(source, batch_size):
        return Batches(source, device)
    assert batch_size is not None
    if isinstance(source, tuple) and all(isinstance(part, torch.Tensor) for part in source):
        source = TensorDataset(*source)
    on = None if device.type == "cpu" else device
    return Batches(Loader(source, batch_size, device=on, **settings), device, own=True)


def while_small(
    go_on: Callable[[Sequence[Any]], bool], world: int
) -> Callable[[Sequence[Any]], bool]:
    """For `Batches.peek`: as long as ``go_on`` tells to, and all ranks are to hold one more batch."""

    def both(found: Sequence[Any]) -> bool:
        size = sum(tensor.nbytes for tensor in tensors_in(found[0])) * len(found)
        goes_on = go_on(found)  # asked in any case: ranks may have to meet for it
        return bool(ranks.least(goes_on and (len(found) < FEWEST_HELD or size < HELD_BYTES), world))

    return both


def gone_through_once(source: Any) -> Any:
    """What can be: an iterator, or a stream that gives one and the same whenever it is asked for one, in this
    process; None where nothing is so.
    """
    if isinstance(source, Iterator):
        return source
    if isinstance(source, DataLoader) and not source.num_workers:
        stream: Any = source.dataset
        streams = isinstance(stream, IterableDataset)
        if streams and not inspect.isgeneratorfunction(type(stream).__iter__):
            one, other = iter(stream), iter(stream)
            if one is other and one is not stream:  # which may begin anew
                return one
    return None


def is_exact(source: Any) -> bool:
    """Whether an epoch has as many batches as a source tells: not where several workers share an
    IterableDataset, as each of them ends with a batch of its own.
    """
    shared = isinstance(source, DataLoader) and isinstance(source.dataset, IterableDataset)
    return told_length(source) is not None and not (shared and source.num_workers > 1)


def told_length(source: Any) -> int | None:
    """Batches of an epoch as a source tells them, where it does."""
    try:
        return len(source)
    except (TypeError, NotImplementedError):
        return None


def is_ready(source: Any, batch_size: int | None) -> bool:
    """Whether a source gives batches, not samples."""
    if batch_size is None or isinstance(source, DataLoader | Loader):
        return True
    path = isinstance(source, str | Path)
    return not path and hasattr(source, "__iter__") and not hasattr(source, "__getitem__")
