"""How much memory a step would take: with another batch, on another device, with other remedies.

The memory of a step is a line over its batch size, one for forward and backward and one for the
optimizer's step; the higher one is the peak. What came from outside of the step has a line too. All are
measured at two batch sizes, where the script's batches can be given again in part; else what is not the
model's own is taken to be in proportion.

On a GPU the largest batch is tried besides: its libraries take other scratch memory for other sizes.

States over n devices: ZeRO 1 shares out the optimizer's, 2 the gradients as well, 3 the parameters as
well (Rajbhandari et al. 2020, arXiv 1910.02054).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from msgspec.structs import replace

from outpace.errors import TargetError
from outpace.plan.hardware import Device
from outpace.records.memory import ByKind
from outpace.records.plan import MemoryPlan, Room, Sizes, StepFlops, StepSize

How = Literal["measured", "predicted"]

ACCUMULATED = (2, 4)
MOST_BATCH = 1 << 30
GPU_WHOLE, GPU_PIECES = 0.96, 40 << 20
"""part of a GPU's memory, and bytes less, that tensors can have beside the pieces that were seen to be of no
use: torch takes it by 2 and 20 MiB, and with those alone 2 of 7 batches that were told to fit did not"""
NEAR = 1.05
"""so many times as large a batch as one that ran is worth a try"""
LESS = 0.9
"""of a batch that did not fit is tried next"""


@dataclass(frozen=True)
class Line:
    """Bytes over samples."""

    fixed: float
    slope: float

    def at(self, batch: int) -> float:
        """Bytes with so many samples."""
        return self.fixed + self.slope * batch


@dataclass(frozen=True)
class StepLaw:
    """Memory of a step over its batch size."""

    lasting: int
    """the model, its gradients where they are kept, and the optimizer's state"""
    learning: Line
    optimizer: Line
    data: Line
    pieces: Line = Line(0.0, 0.0)
    """of a GPU's memory that its allocator cannot use"""

    def peak(self, batch: int, less: float = 0.0) -> int:
        """The most held at once; with so many bytes less a sample in forward and backward."""
        highest = max(self.learning.at(batch) - less * batch, self.optimizer.at(batch))
        return round(self.lasting + self.data.at(batch) + highest)

    def needs(self, batch: int) -> int:
        """What has to be free for that: the peak, and the pieces that cannot be used."""
        return self.peak(batch) + round(self.pieces.at(batch))

    def largest(self, limit: int) -> int:
        """The largest batch that stays within a limit; 0: none."""
        low, high = 0, 1
        while high < MOST_BATCH and self.needs(high) <= limit:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.needs(middle) <= limit else (low, middle)
        return low


def law_of(sizes: Sizes) -> StepLaw:
    """The lines through what was measured. Raises TargetError where nothing was."""
    if not sizes.steps:
        raise TargetError(
            "no step's memory could be measured", "; ".join(sizes.notes) or "see `outpace diagnose`"
        )
    largest = max(sizes.steps, key=lambda size: size.batch)
    smallest = min(sizes.steps, key=lambda size: size.batch)
    if largest.batch == smallest.batch:
        # Gradients that are made in the step are as large whatever the batch.
        made = 0 if gradients_at_entry(largest) else min(gradients_of(largest), largest.learning)
        grown = (largest.learning - made) / max(1, largest.batch)
        # On a GPU most of it are libraries' workspaces, and data of another size than the batch's.
        slope = 0.0 if sizes.device != "cpu" else largest.data / max(1, largest.batch)
        data = Line(largest.data - slope * largest.batch, slope)
        pieces = Line(0.0, largest.pieces / max(1, largest.batch))
        return StepLaw(largest.entry, Line(made, grown), Line(largest.optimizer, 0.0), data, pieces)
    return StepLaw(
        largest.entry,
        _through(smallest, largest, lambda size: size.learning),
        _through(smallest, largest, lambda size: size.optimizer),
        _through(smallest, largest, lambda size: size.data),
        _through(smallest, largest, lambda size: size.pieces),
    )


def _through(small: StepSize, large: StepSize, value: object) -> Line:
    assert callable(value)
    slope = max(0.0, (value(large) - value(small)) / (large.batch - small.batch))
    return Line(value(large) - slope * large.batch, slope)


def usable(sizes: Sizes) -> int | None:
    """Bytes that tensors can have on the device that was measured; None where nothing tells."""
    if sizes.limit is None or sizes.device != "cuda":
        return sizes.limit
    return int(GPU_WHOLE * sizes.limit) - GPU_PIECES


def largest_told(sizes: Sizes) -> int:
    """The largest batch that fits on a device whose memory is known: by what was measured, and less than one
    that failed.
    """
    limit = usable(sizes)
    assert limit is not None
    largest = law_of(sizes).largest(limit)
    return largest if sizes.failed is None else min(largest, int(LESS * sizes.failed))


def next_to_try(sizes: Sizes, most: int = MOST_BATCH) -> int | None:
    """The batch that a GPU is to be tried with, of no more samples than ``most``; None where one that is
    hardly smaller ran, or none can be told. After one that failed it is half of that, from which the rest is
    told again.
    """
    if not sizes.may_try or usable(sizes) is None or not sizes.steps:
        return None
    ran = max(size.batch for size in sizes.steps)
    batch = min(largest_told(sizes), most)
    if sizes.failed is not None and ran < sizes.failed // 2:
        batch = min(batch, sizes.failed // 2)
    return batch if batch >= NEAR * ran else None


def memory_plan(sizes: Sizes, batch: int | None, device: Device | None, count: int) -> MemoryPlan:
    """The peak with so many samples, whether it fits, and what would make room."""
    law = law_of(sizes)
    own = sizes.steps[0]
    asked = batch or own.batch
    limit = usable(sizes) if device is None else device.room_bytes
    how: How = "measured" if asked == own.batch and device is None else "predicted"
    peak = own.peak if asked == own.batch else law.peak(asked)
    fits = None if limit is None else peak + round(law.pieces.at(asked)) <= limit
    largest, tried = None if limit is None else law.largest(limit), False
    if limit is not None and device is None:
        ran, told = max(size.batch for size in sizes.steps), largest_told(sizes)
        largest = max(told, ran)
        if sizes.fitted or sizes.failed:
            # Where a larger one failed nothing is told that did not run.
            tried = sizes.failed is not None or told < NEAR * ran
            largest = ran if tried else largest
        fits = asked <= largest or (bool(fits) and not tried)
    scale = asked / max(1, own.batch)

    def fit(peak: int, at_once: int) -> bool | None:
        """Whether there is room for it; what is beyond the largest batch that was tried has none."""
        if limit is None or largest is None:
            return None
        return peak <= limit and not (tried and at_once > largest)

    changes = [
        Room(way.change, way.peak, fit(way.peak + way.unused, way.at_once), way.time, way.how)
        for way in _changes(sizes, law, own, asked, count, how)
        if way.peak < peak
    ]
    return MemoryPlan(
        batch=asked,
        micro_steps=sizes.micro_steps,
        peak_bytes=peak,
        by_kind=_kinds(own, law, asked),
        layers=tuple(replace(layer, bytes=round(layer.bytes * scale)) for layer in sizes.layers),
        own_batch=own.batch,
        how=how,
        device=device.name if device is not None else None,
        limit_bytes=limit,
        fits=fits,
        largest_batch=largest,
        changes=tuple(changes),
        largest_tried=tried,
    )


def _kinds(own: StepSize, law: StepLaw, batch: int) -> ByKind:
    """What is held at the peak: the states are the same, all else grows with the batch."""
    kinds = own.kinds
    states = kinds.parameters + kinds.gradients + kinds.optimizer
    rest = law.peak(batch) - states if batch != own.batch else own.peak - states
    before = kinds.activations + kinds.other
    scale = batch / max(1, own.batch)
    activations, other = round(kinds.activations * scale), round(law.data.at(batch))
    if before and activations + other > rest:
        activations = max(0, rest - other)
    return ByKind(
        parameters=kinds.parameters,
        gradients=kinds.gradients,
        optimizer=kinds.optimizer,
        activations=activations,
        temporaries=max(0, rest - activations - other),
        other=other,
    )


class Way(NamedTuple):
    """A change and the bytes that it comes to: at its peak, and those that an allocator cannot use beside it.

    ``at_once``: samples of a step like those that were tried; 0: its steps are of another kind. ``time``: a
    step takes so many times as long; None: unknown.
    """

    change: str
    peak: int
    unused: int
    how: How
    at_once: int = 0
    time: float | None = None


def _changes(
    sizes: Sizes, law: StepLaw, own: StepSize, batch: int, count: int, how: How
) -> Iterator[Way]:
    """Each change alone."""
    unused = round(law.pieces.at(batch))
    forward = 1 + sizes.forward_s / sizes.step_s if sizes.step_s else None
    for change, size, time in (
        ("bf16", sizes.bf16, None),
        ("checkpoint each block", sizes.checkpointed, forward),
    ):
        if size is not None:
            less = (own.learning - size.learning) / max(1, own.batch)
            peak = size.peak if batch == own.batch else law.peak(batch, less)
            yield Way(change, peak, unused, how, time=time)
    for parts in ACCUMULATED:
        if batch >= parts:
            kept = 0 if gradients_at_entry(own) else gradients_of(own)
            least, most = batch // parts, math.ceil(batch / parts)
            of = f"{least}" if least == most else f"{least} or {most}"
            peak = law.peak(most) + kept
            smaller = round(law.pieces.at(most))
            yield Way(f"accumulate {parts} batches of {of}", peak, smaller, "predicted", most)
    if count > 1:
        kinds = own.kinds
        shared = 0
        for stage, part in ((1, kinds.optimizer), (2, kinds.gradients), (3, kinds.parameters)):
            shared += part
            peak = law.peak(batch) - round(shared * (1 - 1 / count))
            yield Way(f"ZeRO {stage} over {count}", peak, unused, "predicted")


def gradients_at_entry(size: StepSize) -> bool:
    """Whether gradients are kept from one step to the next."""
    states = size.kinds.parameters + size.kinds.optimizer
    return size.entry > states + 0.5 * gradients_of(size)


def gradients_of(size: StepSize) -> int:
    """Bytes of all gradients: as many as of what is learnt."""
    return max(size.kinds.gradients, size.learnt)


def step_flops(flops: float, forward: float, step_s: float, peak_per_s: float | None) -> StepFlops:
    """The arithmetic of a step, and the share of the peak that it reaches.

    A backward pass takes twice the forward pass; what there is more of is computed again.
    """
    model = min(flops, 3 * forward) if forward else flops

    def share(computed: float) -> float | None:
        return computed / step_s / peak_per_s if peak_per_s and step_s else None

    return StepFlops(forward, model, flops, peak_per_s, share(model), share(flops))
