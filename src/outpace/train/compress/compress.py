"""`outpace.compress`: a trained model made smaller and faster, one way after the other, each measured."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, final

import torch
from torch import nn

from outpace.errors import UsageError
from outpace.records.gain import Gain
from outpace.seams.generators import generators_kept
from outpace.serve.making import bytes_of
from outpace.train import better
from outpace.train.compress.channels import narrow
from outpace.train.compress.cost import Timed, paired_times
from outpace.train.compress.int8 import quantized
from outpace.train.compress.judging import Judge, Judging
from outpace.train.compress.result import Compressed, Cost, Made, Step
from outpace.train.compress.weights import sparse
from outpace.train.data import Batches, batches
from outpace.train.layers import copy_of
from outpace.train.objective import Objective

Way = Callable[[nn.Module, Judging, float], list[Made]]
WAYS: dict[str, Way] = {"channels": narrow, "weights": sparse, "int8": quantized}
HELD_BYTES = 2**28
TAYLOR = 16
"""batches that gradients are taken of"""
PARTS = (0.5, 0.25)
"""of what a scan may lose, once what it chose has cost too much"""


def compress(
    model: nn.Module,
    *,
    valid: Any,
    metric: Any,
    larger_is_better: bool | None = None,
    tolerance: float = 0.01,
    ways: Sequence[str] = ("channels", "weights", "int8"),
    scan: Any = None,
    loss: Any = None,
    tune: Callable[[nn.Module], Any] | None = None,
    batch_size: int | None = 64,
    time_s: float = 2.0,
) -> Compressed:
    """Compress a copy of a trained model; the given one stays as it is, bit for bit.

    ``valid``, ``batch_size``: as `outpace.Trainer` takes them; ``metric(outputs, targets)``, or
    ``metric(model, batch)``, or an object with update, compute and reset. ``larger_is_better``: of the
    metric; None: as it says itself (torchmetrics), or as its name tells (smaller for a loss or an error),
    else larger, with a note. ``tolerance``: by how much the metric may get worse, in its own unit, all ways
    together; the i-th of n ways may have used i/n of it.
    What gets worse by more, or makes nothing smaller or faster, is refused, and the model before it kept.

    ``ways``, in this order: "channels" removes channels, neurons and filters; "weights" sets single
    weights to zero, which makes only a compressed file smaller; "int8" stores weights in int8.
    ``scan``: data by which it is chosen what to remove, such as some of the training's; None: ``valid``,
    which then judges its own choice, a little too kindly. It is gone through some times for each layer.
    ``loss``: as the Trainer takes it; with it channels are chosen by a Taylor expansion on the data of
    the scan, without it by their norms. ``tune``: trains a model for a while, in place; it is called
    after channels or weights were removed, of which more are then removed, before what is left is judged.
    ``time_s``: of each comparison of latencies, those of a call with a batch of ``valid``.

    Raises UsageError for what cannot be compressed at all.

    Example::

        result = outpace.compress(model, valid=(x, y), metric=accuracy, tolerance=0.005)
        print(result.table())
        torch.save(result.model, "small.pt")

        def tune(model):
            outpace.Trainer(model, loss=F.cross_entropy, train=train, epochs=2).fit(quiet=True)
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"a {type(model).__name__} is no torch.nn.Module", "give the model")
    for way in ways:
        if way not in WAYS:
            raise UsageError(f"there is no way {way!r}", f"there are: {', '.join(WAYS)}")
    if not tolerance >= 0.0:
        raise UsageError(f"tolerance={tolerance}", "it is what the metric may lose, 0 or more")
    larger, unsure = better.larger_is_better(metric, larger_is_better)
    original = copy_of(model).eval()
    device = next(original.parameters(), torch.empty(0)).device
    given = batches(valid, batch_size, device, shuffle=False)
    looked_at = batches(scan, batch_size, device, shuffle=False) if scan is not None else given
    objective = Objective(loss) if loss is not None else None
    try:
        with generators_kept():
            judge = Judge(metric, held(given))
            judging = Judging(
                valid=judge,
                scan=judge if looked_at is given else Judge(metric, held(looked_at)),
                original=original,
                sign=1.0 if larger else -1.0,
                losses=losses_of(objective, looked_at) if objective is not None else None,
                tune=tune,
                kept=objective.kept if objective is not None else nullcontext,
            )
            made = Compressing(judging, tolerance, time_s).through(ways)
            return dataclasses.replace(made, notes=(*made.notes, unsure)) if unsure else made
    finally:
        given.close()
        looked_at.close()


def held(data: Batches) -> Batches:
    """The same batches, in memory where there is room: they are gone through again and again."""
    first = data.peek(1)
    if data.length is None or sum(map(bytes_of, first)) * data.length > HELD_BYTES:
        return data
    return Batches(list(data.epoch()), data.device)


def losses_of(objective: Objective, data: Batches) -> list[Callable[[nn.Module], torch.Tensor]]:
    """The losses of some batches."""
    objective.to(data.device)
    return [partial(_loss, objective, batch) for batch in data.peek(TAYLOR)]


def _loss(objective: Objective, batch: Any, model: nn.Module) -> torch.Tensor:
    return objective(model, batch)


@final
class Compressing:
    """A model on its way; ``model``, ``cost``: with what was accepted so far."""

    def __init__(self, judging: Judging, tolerance: float, time_s: float) -> None:
        self.judging, self.tolerance, self.time_s = judging, tolerance, time_s
        self.model, self.cost = judging.original, judging.cost(judging.original)

    def through(self, ways: Sequence[str]) -> Compressed:
        """One way after the other."""
        first = self.cost
        steps = [self.go(way, (i + 1) / len(ways)) for i, way in enumerate(ways)]
        accepted = [step for step in steps if step.accepted]
        gain, after = None, self.cost
        if accepted:
            timed = self.timed(self.judging.original, self.model)
            first, after = with_time(first, timed.first_s), with_time(after, timed.second_s)
            gain = timed.gain
        judged = f"the metric: of {self.judging.valid.samples:,} samples"
        threads = torch.get_num_threads()
        notes = [f"a call: {self.judging.batch:,} samples on {threads} threads; {judged}"]
        if self.judging.scan is self.judging.valid and {"channels", "weights"} & set(ways):
            notes.append(
                "what to remove was chosen by the same data that judge it: the metric may be lower on "
                "others (give scan=)"
            )
        return Compressed(self.model, tuple(steps), first, after, gain, tuple(notes))

    def timed(self, one: nn.Module, other: nn.Module) -> Timed:
        """Calls of both."""
        return paired_times(one, other, self.judging.call, self.time_s)

    def go(self, way: str, share: float) -> Step:
        """Try one way, and less of it where that costs too much after all."""
        allowed = share * self.tolerance
        step = self.tried(way, allowed, 1.0)
        for part in PARTS:
            if step.accepted or not step.shares or self.judging.certain:
                break
            step = self.tried(way, allowed, part)
        return step

    def tried(self, way: str, allowed: float, part: float) -> Step:
        """Keep what a way gives where it may be kept; ``part`` of what is allowed it is told of."""
        try:
            made = WAYS[way](copy.deepcopy(self.model), self.judging, part * allowed)
        except UsageError as error:
            return Step(way, False, error.message, self.cost)
        step, after, gain = self.measured(way, made[0], allowed)
        model = made[0].model
        for each in made[1:]:
            other, other_after, other_gain = self.measured(way, each, allowed)
            # In doubt the first: the best of several noisy times is a lucky one.
            faster = other_gain.low > gain.speedup if step.accepted else other.accepted
            if other.accepted and faster:
                step, after, gain, model = other, other_after, other_gain, each.model
        if step.accepted:
            self.model, self.cost = model, after
        return step

    def measured(self, way: str, made: Made, allowed: float) -> tuple[Step, Cost, Gain]:
        """What a model that was made costs, against the one before it."""
        timed = self.timed(self.model, made.model)
        before = with_time(self.cost, timed.first_s)
        after = with_time(self.judging.cost(made.model), timed.second_s)
        lost = self.judging.lost(self.judging.metric, after.metric)
        # A file that only compresses better may not be larger for it.
        zips = after.bytes == before.bytes and after.zipped_bytes < before.zipped_bytes
        smaller = after.bytes < before.bytes or zips
        reason = made.said
        if too_much := lost > allowed + self.judging.slack:
            reason += (
                f"; refused: the metric goes from {self.judging.metric:.4g} to {after.metric:.4g}, "
                f"{allowed:.3g} are allowed"
            )
        elif not (smaller or timed.gain.is_gain):
            reason += "; refused: it is neither smaller nor faster"
        accepted = not too_much and (smaller or timed.gain.is_gain)
        shares, curves = dict(made.shares), dict(made.curves)
        step = Step(way, accepted, reason, before, after, timed.gain, shares, curves)
        return step, after, timed.gain


def with_time(cost: Cost, seconds: float) -> Cost:
    """A cost whose latency was measured."""
    return Cost(cost.bytes, cost.zipped_bytes, cost.metric, seconds)
