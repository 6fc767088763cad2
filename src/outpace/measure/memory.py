"""Memory of one training step: its peak, and what is in it.

On the CPU torch keeps no count of what its tensors hold, so storages are followed from the
operator that makes them to their end (a weak reference). On trial models this equals what torch's
profiler sees of the allocator to the byte for a GPT and an MLP, and is 4-8 % lower for
convolutions and an LSTM, whose kernels take scratch memory of their own that no operator shows. The
profiler was not chosen because a script may be using it itself, and because it knows no kinds.

On CUDA the allocator's own count is used for the peak. It is not reset, as the script may print it,
so it is the peak since the process began.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from outpace.measure.dispatch import Operator, OperatorWatch, phase, storage_of, tensors_in
from outpace.records.memory import ByKind
from outpace.seams.held import learned_by

Kind = Literal["parameters", "gradients", "optimizer", "activations", "temporaries", "other"]


@dataclass
class Followed:
    """A storage that is followed: what it is for, and its size now."""

    kind: Kind
    bytes: int
    made_here: bool
    """made in the step, or freed in it as a gradient is; else it was there or came from outside"""
    end: weakref.ref[torch.UntypedStorage] | None = None


class StepMemory(OperatorWatch):  # type: ignore[no-untyped-call]
    """Follows memory between ``__enter__`` and ``__exit__``, one step: slow, so for one step.

    ``roots`` and ``optimizers`` tell parameters, gradients and optimizer state from the rest.
    ``peak_bytes`` is the most held above the state at entry; ``saved_bytes`` is what a forward
    pass left for its backward pass (activations, the loss, the batch where it was made in the
    step); ``cuda_peak_bytes`` is the CUDA allocator's peak since the process began. Where
    ``failure`` is not None the figures are incomplete.
    """

    def __init__(
        self,
        roots: Iterable[torch.nn.Module] = (),
        optimizers: Iterable[torch.optim.Optimizer] = (),
    ) -> None:
        super().__init__()
        self.peak_bytes = 0
        self.peaks: Counter[str] = Counter()
        """the same, of the optimizer's step ("other") and of all else ("learning")"""
        self.above = 0
        """what is held now above the state at entry"""
        self.entry_bytes = 0
        """what the model and the optimizers held at entry"""
        self.saved_bytes = 0
        self.cuda_peak_bytes = 0
        self._roots, self._optimizers = list(roots), list(optimizers)
        self._device = _device_of(self._roots)
        self._known: dict[int, Followed] = {}
        self._changes: list[tuple[Followed, int]] = []
        self._peak_at = 0
        self._last_phase = "other"

    def __enter__(self) -> StepMemory:
        """Begin; what the model and the optimizers hold already is known."""
        super().__enter__()
        try:
            for kind, storage in _lasting(self._roots, self._optimizers):
                self._follow(storage, kind, made_here=kind == "gradients")
        except Exception as error:
            self.failure = f"{type(error).__name__} at the begin: {error}"
        self.entry_bytes = sum(followed.bytes for followed in self._known.values())
        self.above, self.peak_bytes, self._peak_at = 0, 0, len(self._changes)
        self.peaks.clear()
        return self

    def __exit__(self, *exception: object) -> None:
        """End; an exception passes through."""
        super().__exit__(*exception)
        try:
            for kind, storage in _lasting(self._roots, self._optimizers):
                followed = self._known.get(storage._cdata)
                if followed is not None:
                    followed.kind = kind
            if self._device == "cuda":
                self.cuda_peak_bytes = torch.cuda.max_memory_allocated()
        except Exception as error:
            self.failure = self.failure or f"{type(error).__name__} at the end: {error}"
        self._roots, self._optimizers = [], []

    def by_kind(self) -> ByKind:
        """Bytes at the peak by what they are for; call it after the step.

        "activations" is what a forward pass made and had not freed, "temporaries" what the backward
        pass and the optimizer made, "other" what was used without being made in the step (data, and
        on CUDA whatever else the allocator held at its peak).
        """
        held: Counter[str] = Counter()
        for followed, change in self._changes[: self._peak_at]:
            held[followed.kind] += change
        unseen = max(0, self.cuda_peak_bytes - held.total()) if self._device == "cuda" else 0
        held["other"] += unseen
        return ByKind(**held)

    def see(
        self, operator: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any
    ) -> None:
        """Note memory that an operator made, resized, or used without its having been seen."""
        now = phase()
        if now == "backward" and self._last_phase != "backward":
            held = (f.bytes for f in self._known.values() if f.kind == "activations")
            self.saved_bytes = max(self.saved_bytes, sum(held))
        self._last_phase = now
        made: Kind = "activations" if now == "forward" else "temporaries"
        for storage in self._storages((args, kwargs)):
            self._follow(storage, "other", made_here=False)
        for storage in self._storages(out):
            self._follow(storage, made, made_here=True)

    def _storages(self, value: Any) -> Iterator[torch.UntypedStorage]:
        for tensor in tensors_in(value):
            storage = storage_of(tensor)
            if storage is not None and storage.device.type == self._device:
                yield storage

    def _follow(self, storage: torch.UntypedStorage, kind: Kind, *, made_here: bool) -> None:
        """Follow a storage to its end; one that is followed already may have another size now."""
        key, size = storage._cdata, storage.nbytes()
        followed = self._known.get(key)
        if followed is None:
            followed = self._known[key] = Followed(kind, 0, made_here)
            followed.end = weakref.ref(storage, _Ended(self, key))
        if followed.bytes != size:
            self._change(followed, size - followed.bytes)

    def _change(self, followed: Followed, more: int) -> None:
        followed.bytes += more
        self._changes.append((followed, more))
        if followed.made_here:
            self.above += more
            part = "other" if self._last_phase == "other" else "learning"
            self.peaks[part] = max(self.peaks[part], self.above)
            if self.above > self.peak_bytes:
                self.peak_bytes, self._peak_at = self.above, len(self._changes)

    def _end(self, key: int) -> None:
        followed = self._known.pop(key, None)
        if followed is not None and self.watching:
            self._change(followed, -followed.bytes)


class _Ended:
    """Told when a storage ends; does not keep the watch alive."""

    def __init__(self, watch: StepMemory, key: int) -> None:
        self.watch, self.key = weakref.ref(watch), key

    def __call__(self, _: object) -> None:
        watch = self.watch()
        if watch is not None:
            watch._end(self.key)


def _lasting(
    roots: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer]
) -> Iterator[tuple[Kind, torch.UntypedStorage]]:
    """Memory that outlasts a step: parameters and buffers, gradients, optimizer state."""
    optimizers = list(optimizers)
    weights: list[torch.Tensor] = [weight for root in roots for weight in root.parameters()]
    weights += learned_by(optimizers)
    buffers = [buffer for root in roots for buffer in root.buffers()]
    states = [list(state.values()) for o in optimizers for state in o.state.values()]
    kinds: list[tuple[Kind, Any]] = [
        ("parameters", weights + buffers),
        ("gradients", [weight.grad for weight in weights]),
        ("optimizer", states),
    ]
    for kind, tensors in kinds:
        for tensor in tensors_in(tensors):
            storage = storage_of(tensor)
            if storage is not None:
                yield kind, storage


def _device_of(roots: Iterable[torch.nn.Module]) -> str:
    """The type of device that the model is on."""
    for root in roots:
        for weight in root.parameters():
            return weight.device.type
    return "cpu"
