"""What else would end a training sooner than the remedies: another model, batch, or machine.

Less of a model is measured: steps are run without a part of it. Other machines are predicted, from
what each operator of a step took here and their rates (`outpace.plan.elsewhere`); the limits are wide.

Data parallel: each of n devices takes a batch as large as the script's, and the gradients go round in
a ring, 2 (n - 1) / n of their bytes over the slowest link (Thakur et al. 2005).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from outpace.plan.elsewhere import computing_s, rates_here, rates_there
from outpace.plan.hardware import Device, devices
from outpace.records.evidence import Arm, Evidence

How = Literal["measured", "predicted", "not measured"]

MACHINES = (2, 4)
LINK_BYTES_S = 1.25e9
"""10 Gbit/s, between machines like this one"""
LATENCY_S = 50e-6
OVERHEAD = 1.25
"""times that several devices may take as long as reckoned"""
SIZES = (0.25, 0.5, 1.0)
"""areas of the images in the thirds of a progressive resizing: sides of 1/2, 0.7 and 1"""
SCALING = 1.4
"""times that a step on another device may take as long, or as short, as reckoned, at the least"""
LEAST_LEFT = 0.5
"""of a step's computing, that is none of filling pages"""
HIDDEN = 0.1
"""share of a step that waits for a loader's workers: above it less compute gives nothing"""
PACKED = 0.5
"""of the time for reading and parsing that packed samples save at least"""
OFFERED = ("T4", "L4", "A10G", "A100-80GB", "H100-SXM", "TPUv5e", "TPUv6e")


@dataclass(frozen=True)
class Change:
    """A change, and how many times as fast the steps are; ``usd_per_hour``: None: this machine's."""

    name: str
    speedup: float
    low: float
    high: float
    how: How
    keeps: str = "learning"
    device: Device | None = None
    count: int = 1


def changes(evidence: Evidence) -> Iterator[Change]:
    """All that can be told of this training."""
    if evidence.steps.mean_s <= 0:
        return
    yield from of_the_format(evidence)
    yield from of_the_model(evidence)
    yield from of_the_batch(evidence)
    yield from more_devices(evidence)
    yield from other_devices(evidence)


def of_the_format(evidence: Evidence) -> Iterator[Change]:
    """Samples in one file, parsed before: no more waiting for storage, and none for parsing."""
    source, step = evidence.input, evidence.steps.mean_s
    if source.fetch_s <= 0:
        return
    saved = min(1.0, (source.storage_s + source.parse_s) / source.fetch_s)
    most = min(source.wait_s * saved, 0.99 * step)
    sped, low = step / (step - most), step / (step - PACKED * most)
    yield Change("the data packed by `outpace pack`", sped, low, sped, "predicted", "exact")


def of_the_model(evidence: Evidence) -> Iterator[Change]:
    """Parts left out, dropout, activations, half of it frozen: as measured."""
    kinds = Counter(evidence.compute.parts.values())
    for arm in evidence.arms:
        word, _, name = arm.name.partition(" ")
        if arm.failed is not None or word not in ("without", "frozen", "relu"):
            continue
        found = _step_speedup(evidence, arm)
        if word == "without" and name in evidence.compute.parts:
            kind = evidence.compute.parts[name]
            yield Change(f"without {name} ({kind})", *found, "measured")
            fewer = kinds[kind] // 2
            if fewer > 1:
                several = [1 / (1 - min(0.9, fewer * (1 - 1 / gain))) for gain in found]
                name = f"{fewer} of {kinds[kind]} {kind} fewer"
                yield Change(name, several[0], several[1], several[2], "predicted")
        elif word == "frozen":
            yield Change(f"frozen up to {name}", *found, "measured")
        elif word == "relu":
            dear = " and ".join(evidence.compute.dear) or "its activations"
            yield Change(f"ReLU for {dear}", *found, "measured")
        else:
            yield Change("without dropout", *found, "measured")
    if evidence.compute.any_size and evidence.compute.convolutions:
        share = _computing(evidence)
        sped = 1 / (1 - share * (1 - sum(SIZES) / len(SIZES)))
        yield Change(
            "images from half their size up", sped, 1 + 0.4 * (sped - 1), sped, "predicted"
        )


def of_the_batch(evidence: Evidence) -> Iterator[Change]:
    """Twice the samples in half of the steps, as measured of compute.

    Half of them in twice the steps computes no less, and pays what a step costs whatever its batch twice:
    that is for the memory alone (`outpace plan --memory`).
    """
    arm = evidence.arm("batch_double")
    if arm is None or not evidence.input.batch_size:
        return
    free, step = evidence.free_s, evidence.steps.mean_s
    rest = max(0.0, step - free)
    one = evidence.input.batch_size
    gains = _in_doubt(evidence, rest, [0.5 * free / gain for gain in _limits(arm)])
    yield Change(f"a batch of {2 * one} in half of the steps", *gains, "measured")


def more_devices(evidence: Evidence) -> Iterator[Change]:
    """Machines like this one, each with a batch of its own."""
    weights = evidence.compute.learnt_bytes
    step = evidence.steps.mean_s
    for count in MACHINES if weights else ():
        exchange = 2 * (count - 1) * (weights / count / LINK_BYTES_S + LATENCY_S)
        sped = count * step / (step + exchange)
        name = f"{count} machines like this one, at 10 Gbit/s"
        yield Change(name, sped, sped / OVERHEAD, count, "predicted", count=count)


def other_devices(evidence: Evidence) -> Iterator[Change]:
    """Accelerators of the table: a step's operators by their rates, the rest as here."""
    compute, step_s = evidence.compute, evidence.steps.mean_s
    here = rates_here(evidence)
    if compute.device != "cpu" or not compute.flops or here is None or compute.clocked_s <= 0:
        return
    rest = max(0.0, step_s - compute.clocked_s)
    for name in OFFERED:
        found = devices()[name]
        there = rates_there(found)
        if there is None or evidence.memory.peak_bytes > found.room_bytes:
            continue
        computing = computing_s(evidence, here, there)
        # Other libraries and kernels: as far off as devices of one kind are from each other, at least.
        least = min(computing.least, computing.estimate / SCALING)
        most = max(computing.most, computing.estimate * SCALING)
        sped, low, high = (step_s / (rest + s) for s in (computing.estimate, most, least))
        yield Change(f"on one {name}", sped, low, high, "not measured", "numerics", found)


def _step_speedup(evidence: Evidence, arm: Arm) -> tuple[float, float, float]:
    """Of whole steps, where an arm was measured with its input free."""
    step, free, source = evidence.steps.mean_s, evidence.free_s, evidence.input
    if source.workers and source.wait_s > HIDDEN * step:
        return 1.0, 1.0, 1.0
    return _in_doubt(evidence, max(0.0, step - free), [free / gain for gain in _limits(arm)])


def _limits(arm: Arm) -> tuple[float, float, float]:
    return arm.gain.speedup, arm.gain.low, arm.gain.high


def _in_doubt(
    evidence: Evidence, rest: float, computing: Sequence[float]
) -> tuple[float, float, float]:
    """Gains of steps that compute for so long, as estimated and at the most and at the least.

    Other sizes were measured in the same process. How much of its memory the allocator gives back to the
    system at each step, to be filled anew, differs from process to process: all of it, or nothing.
    """
    step, paging, (estimate, most, least) = evidence.steps.mean_s, evidence.paging_s, computing
    most, least = most + paging, max(least - paging, LEAST_LEFT * least)
    return step / (rest + estimate), step / (rest + most), step / (rest + least)


def _computing(evidence: Evidence) -> float:
    compute, step = evidence.compute, evidence.steps.mean_s
    return min(1.0, (compute.forward_s + compute.backward_s) / step)
