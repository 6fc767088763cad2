"""What else would end a training sooner than the remedies: another model, batch, or machine.

Less of a model is measured: steps are run without a part of it. Other machines are predicted, from
what each operator of a step took here and their rates (`outpace.plan.elsewhere`); the limits are wide.
Less computing makes no step shorter than its batches take the loader's workers.

Data parallel: each of n devices takes a batch as large as the script's, and the gradients go round in
a ring, 2 (n - 1) / n of their bytes over the slowest link (Thakur et al. 2005).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from outpace.plan.elsewhere import step_on
from outpace.plan.hardware import Device, devices
from outpace.records.arm import Arm
from outpace.records.evidence import Evidence

How = Literal["measured", "predicted", "not measured"]
Gains = tuple[float, float, float]
"""times as fast: as estimated, at the least and at the most"""

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
"""share of a step that waits for a loader's workers: above it they are what a step takes its time by"""
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


def changes(evidence: Evidence, asked: Device | None = None, count: int = 1) -> Iterator[Change]:
    """All that can be told of this training, on ``count`` of the device that was ``asked`` about too."""
    if evidence.steps.mean_s <= 0:
        return
    yield from of_the_model(evidence)
    yield from of_the_batch(evidence)
    yield from more_devices(evidence, MACHINES if count == 1 else (count,))
    yield from other_devices(evidence, asked, count)


def of_the_model(evidence: Evidence) -> Iterator[Change]:
    """Parts left out, dropout, activations, half of it frozen: as measured."""
    kinds, step = Counter(evidence.compute.parts.values()), evidence.steps.mean_s
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
                left = [step * (1 - min(0.9, fewer * (1 - 1 / gain))) for gain in found]
                name = f"{fewer} of {kinds[kind]} {kind} fewer"
                yield Change(name, *_gains(evidence, left), "predicted")
        elif word == "frozen":
            yield Change(f"all up to {name} frozen", *found, "measured")
        elif word == "relu":
            dear = " and ".join(evidence.compute.dear) or "its activations"
            yield Change(f"ReLU for {dear}", *found, "measured")
        else:
            yield Change("without dropout", *found, "measured")
    if evidence.compute.any_size and evidence.compute.convolutions:
        less = step - _learning_s(evidence) * (1 - sum(SIZES) / len(SIZES))
        sped, *_ = _gains(evidence, (less,) * 3)
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


def more_devices(evidence: Evidence, counts: Sequence[int]) -> Iterator[Change]:
    """Machines like this one, each with a batch of its own."""
    for count in counts if evidence.compute.learnt_bytes else ():
        gains = _together(evidence, (1.0, 1.0, 1.0), count, LINK_BYTES_S)
        name = f"{count} machines like this one, at 10 Gbit/s"
        yield Change(name, *gains, "predicted", count=count)


def other_devices(evidence: Evidence, asked: Device | None, count: int) -> Iterator[Change]:
    """Accelerators of the table: a step's operators by their rates, the rest as here."""
    rest = max(0.0, evidence.steps.mean_s - evidence.compute.clocked_s)
    told = [(devices()[name], 1) for name in OFFERED]
    if asked is not None and (count == 1 or evidence.compute.learnt_bytes):
        told.append((asked, count))
    for found, several in dict.fromkeys(told):
        computing = step_on(found, evidence)
        if isinstance(computing, str):
            continue
        # Other libraries and kernels: as far off as devices of one kind are from each other, at least.
        least = min(computing.least, computing.estimate / SCALING)
        most = max(computing.most, computing.estimate * SCALING)
        alone = _gains(evidence, [rest + s for s in (computing.estimate, most, least)])
        link = found.link_gb_s * 1e9 if found.link_gb_s is not None else LINK_BYTES_S
        gains = _together(evidence, alone, several, link)
        keeps = "learning" if several > 1 else "numerics"
        yield Change(on(found, several), *gains, "not measured", keeps, found, several)


def on(device: Device, count: int) -> str:
    """The name of a training there."""
    return f"on {count if count > 1 else 'one'} {device.name}"


def _together(evidence: Evidence, alone: Gains, count: int, link_bytes_s: float) -> Gains:
    """Gains of so many, each of which gains that alone, and which exchange their gradients."""
    if count == 1:
        return alone
    a_link = evidence.compute.learnt_bytes / count / link_bytes_s + LATENCY_S
    exchange = 2 * (count - 1) * a_link / evidence.steps.mean_s
    sped, low, high = alone
    return count / (1 / sped + exchange), count / (1 / low + exchange) / OVERHEAD, count * high


def _step_speedup(evidence: Evidence, arm: Arm) -> Gains:
    """Of whole steps."""
    step = evidence.steps.mean_s
    compared = step if arm.base == "as_is" else evidence.free_s
    return _in_doubt(
        evidence, max(0.0, step - compared), [compared / gain for gain in _limits(arm)]
    )


def _fed_s(evidence: Evidence) -> float:
    """Seconds that the batches of a step take the loader's workers, side by side.

    Where they keep up: their CPU time and their waiting, which other work on the cores makes no longer.
    """
    source, step = evidence.input, evidence.steps.mean_s
    if not source.workers or source.wait_s > HIDDEN * step:
        return step if source.workers else 0.0
    cores = max(1, min(source.workers, evidence.machine.cores))
    batch_s = source.fetch_cpu_s / cores + source.storage_s / source.workers
    return min(step, evidence.steps.micro_steps * batch_s)


def _gains(evidence: Evidence, seconds: Sequence[float]) -> Gains:
    """Of steps that would take so long by their computing, as estimated and at the most and at the least."""
    step, fed = evidence.steps.mean_s, _fed_s(evidence)
    estimate, most, least = (step / max(fed, s) for s in seconds)
    return estimate, most, least


def _limits(arm: Arm) -> Gains:
    return arm.gain.speedup, arm.gain.low, arm.gain.high


def _in_doubt(evidence: Evidence, rest: float, computing: Sequence[float]) -> Gains:
    """Gains of steps that compute for so long, as estimated and at the most and at the least.

    Other sizes were measured in the same process. How much of its memory the allocator gives back to the
    system at each step, to be filled anew, differs from process to process: all of it, or nothing.
    """
    paging, (estimate, most, least) = evidence.paging_s, computing
    most, least = most + paging, max(least - paging, LEAST_LEFT * least)
    return _gains(evidence, [rest + s for s in (estimate, most, least)])


def _learning_s(evidence: Evidence) -> float:
    """Seconds of a step in forward and backward."""
    compute = evidence.compute
    return min(compute.forward_s + compute.backward_s, evidence.steps.mean_s)
