"""What is measured: the training's DataLoader and its model, among all that the seams met."""

from __future__ import annotations

import math
from typing import Any

from outpace.measure.course import Course
from outpace.seams.held import learned_by
from outpace.seams.host import Host
from outpace.seams.loader import LoaderSeam
from outpace.seams.loader_record import Record
from outpace.seams.module import device_of

ONCE = 20
"""steps after which a single batch was not drawn for the first of them"""
FORWARD = 0.4
"""of a step's time, less that for input, that a batch of a validation takes, while none was seen"""


def training_loader(host: Host) -> tuple[Any, Record] | None:
    """The DataLoader that feeds the steps; of several the one that they wait for most."""
    seam = host.seam(LoaderSeam)
    if seam is None:
        return None
    # One batch that many steps learn from feeds none of them.
    pairs = [
        (k, r)
        for k, r in list(seam.records.items())
        if r.trains and not (r.draws == 1 and host.steps > ONCE)
    ]
    return max(pairs, key=lambda pair: pair[1].wait, default=None)


def steps_of_epoch(host: Host, course: Course) -> float | None:
    """Steps that an epoch had of those that are over; None before one is, or where nothing tells."""
    loops, turns = course.loops, course.turns
    each, unknown = turns.per_turn(), [loop.turns for loop in loops].count(None)
    if each is not None and unknown == 0 and len(turns.loops) > 1:
        return each * math.prod(loop.turns for loop in turns.loops[1:])
    outer = [loop.turns for loop in loops].index(None) + 1 if unknown else 0
    if each is not None and unknown == 1 and len(turns.loops) == len(loops) - outer:
        return each
    loaded = training_loader(host)
    if loaded is None or not loaded[1].stepped:
        return None
    return loaded[1].steps / loaded[1].stepped


def forget_epochs(host: Host) -> None:
    """What is over was another training, whose epochs may have been left sooner or later."""
    seam = host.seam(LoaderSeam)
    if seam is not None:
        for record in list(seam.records.values()):
            record.steps = record.stepped = 0


def validation_on_others(
    host: Host, step_s: float, drawing: float, batch: float, *, untouched: bool = False
) -> float:
    """Seconds of a validation on the loaders that feed no steps; 0 where there is none.

    Its batches are drawn as those of a step, which takes ``drawing`` of its time for a ``batch`` of
    samples, and go through the model forward. ``untouched``: only loaders that gave no batch yet.
    """
    seam = host.seam(LoaderSeam)
    if seam is None:
        return 0.0
    samples = sum(
        (seam.record_of(loader).length or 0) * (loader.batch_size or max(1, host.batch_size))
        for loader, record in list(seam.records.items())
        if not (record.trains or record.beside or (untouched and record.draws))
    )
    share = drawing + FORWARD * (1.0 - drawing)
    return share * step_s * samples / max(1.0, batch)


def main_device(host: Host) -> str:
    """The type of device that the model is on; without one, that of what the main optimizer steps."""
    rooted = host.main_root()
    if rooted is not None:
        return device_of(rooted[0])
    optimizer = host.main_optimizer()
    stepped = learned_by([optimizer]) if optimizer is not None else ()
    return next((weight.device.type for weight in stepped), "cpu")
