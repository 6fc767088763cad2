"""How long a step takes under a Setup, computed from what was measured.

A step needs its batch made (F seconds, of which F_cpu on a CPU) and the rest done (C, C_cpu):

    one after the other      T = F + C
    batches made ahead       T = max(F / w, C + H, (F_cpu + C_cpu) / cores)

with w workers that make whole batches, and H the time in which a thread of the same process that makes
them keeps the interpreter from the step; none for processes. The last term is what few cores give:
workers and compute compete for them. Where the step's threads alone use all cores and sleep while they wait,

    T = C + (1 - s) F_cpu / w,    s = 0.85 (cores - w) / threads

as the step goes on at speed s while batches are made (seen: 62 ms for 39 + 40 ms; this gives 62).
On 25 combinations of loaders and models on two cores the formula's median error was 5 %, its worst
22 %; the intervals say so. Threads that spin while they wait, on full cores, slow all of it down
further.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from outpace.records.evidence import Evidence
from outpace.records.gain import Gain
from outpace.seams.setup import AS_IS, Feed, Setup

PLAIN_ERROR = 0.06
OVERLAP_ERROR = 0.15
CONTENTION_ERROR = 0.22
SHARING = 0.85
"""speed of threads that take turns on too few cores, against as many threads as cores"""
SPINNING = 1.3
SPINNING_ERROR = 0.5
"""a step beside makers of batches that never rest, on full cores with spinning threads: 1.1 to 2.1 seen"""
SWITCH_S, HANDING_OVER = 0.005, 1.15
"""after which a thread gives up Python's interpreter to another that waits for it; times as long as one after
the other both take then: 1.1 to 1.14 seen
"""
STALL_S = 0.01
"""for which each batch that is made keeps a core from a step, at the least: all its threads wait for that"""
SCALING = 0.7
"""exponent of the speed of operations over their threads, where no arm told it"""
LEAST_LEFT = 0.05
"""share of a step's compute that is left in any case"""
PRIORS = {
    "bf16": 1.4,
    "channels_last": 1.1,
    "cudnn_benchmark": 1.1,
    "fused_optimizer": 1.05,
    "float32": 1.05,
}
"""gains seen on other trainings, for arms that could not be measured (a very busy machine)"""
PRIOR_ERROR = 0.5
LARGE_PRODUCT = 2e7
"""FLOPs of a product from which on half precision spares more than it takes to convert what goes in"""
CONVERTED = 0.75
"""of what such products would spare by their rates, what is left beside converting"""
HALF_RATE = 2.0
"""of products in half precision, where it was not measured"""
IPC_S_PER_BYTE = 1e-9
"""about 1 us a KB between processes"""
PLACED_S_PER_BYTE = 1.5e-10
"""where batches lie in places that are used again: a copy"""
MAPPED, MAPPED_S_PER_BYTE = 1 << 25, 6e-10
"""blocks of so many bytes glibc maps anew each time: then the worker's own batch has fresh pages still"""
PIXEL_BYTES, DISK_PIXEL_BYTES = 4, 3
"""of a decoded image: Pillow has RGB in four bytes, on disk it has three"""


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step and the relative error (95 %) that they are good for."""

    seconds: float
    error: float


def predicted_gain(evidence: Evidence, before: Setup, after: Setup) -> Gain:
    """Speed-up of a steady step from one Setup to another."""
    one, other = step_time(evidence, before), step_time(evidence, after)
    if one.seconds <= 0 or other.seconds <= 0:
        return Gain(1.0, 1.0, 1.0)
    speedup = one.seconds / other.seconds
    error = max(PLAIN_ERROR, other.error) if before != after else 0.0
    return Gain(speedup, speedup / (1 + error), speedup * (1 + error))


def gain_without(saved: float, low: float, high: float) -> Gain:
    """Speed-up where a share of the time is saved, between two limits of that share."""
    usual, least, most = (1 / (1 - min(0.95, max(0.0, p))) for p in (saved, low, high))
    return Gain(usual, min(least, usual), max(most, usual))


def step_time(evidence: Evidence, setup: Setup) -> StepTime:
    """Time of a steady step under ``setup``."""
    compute, compute_cpu, compute_error = compute_time(evidence, setup)
    if setup.free_input or evidence.input.kind == "none":
        return StepTime(compute, compute_error)
    if evidence.input.kind == "lines":
        return StepTime(compute + evidence.input.wait_s, compute_error)
    fetch, fetch_cpu = fetch_time(evidence, setup)
    feed = setup.feed
    cores = max(1, evidence.machine.cores)
    workers, ahead = _parallel(evidence, feed)
    if not ahead or evidence.begun_s:
        seconds = evidence.begun_s + fetch + compute
        if evidence.compute.device != "cpu":
            seconds = min(seconds, evidence.steps.mean_s)  # it computes while a batch is made
        return StepTime(seconds, max(PLAIN_ERROR, compute_error))
    made = fetch / workers
    if feed.executor == "threads":
        made = (fetch - fetch_cpu) / workers + fetch_cpu / threads_speedup(min(workers, cores))
        workers = min(workers, cores)
    seconds = max(made, compute + kept_waiting(evidence, setup), (fetch_cpu + compute_cpu) / cores)
    if not crowded(evidence, workers, setup.threads):
        return StepTime(seconds, max(OVERLAP_ERROR, compute_error))
    if not setup.passive:
        held_up = fetch_cpu + STALL_S * max(1, evidence.steps.micro_steps)
        busy = min(1.0, held_up / seconds) if seconds else 0.0
        return StepTime((1 + (SPINNING - 1) * busy) * seconds, SPINNING_ERROR)
    # While batches are made, the step's threads have what cores are left, and wait for each other.
    threads = setup.threads or evidence.compute.threads
    speed = SHARING * max(0, cores - workers) / threads
    seconds = max(seconds, compute + (1 - speed) * fetch_cpu / workers)
    return StepTime(seconds, max(CONTENTION_ERROR, compute_error))


def kept_waiting(evidence: Evidence, setup: Setup) -> float:
    """Seconds that a step waits for the interpreter while a thread beside it makes batches in Python.

    Each operation that the step calls from Python lets the thread have it, which gives it up only after
    `SWITCH_S`: so while samples are made the step hardly goes on, unless its operations are few and long.
    """
    if setup.feed.executor not in ("ahead", "threads") or not evidence.input.held:
        return 0.0
    _, cpu = fetch_time(evidence, setup)
    return HANDING_OVER * min(evidence.input.held * cpu, SWITCH_S * evidence.compute.operations)


def crowded(evidence: Evidence, makers: int, threads: int | None = None) -> bool:
    """Whether makers of batches and the step's OpenMP threads are more than the cores."""
    threads = threads or evidence.compute.threads
    return (
        evidence.compute.device == "cpu"
        and makers > 0
        and threads > 1
        and threads + makers > evidence.machine.cores
    )


def threads_speedup(threads: int) -> float:
    """What threads of one process gain at work that lets others run for the most part.

    JPEG decoding: two threads took 0.65 of the time of one.
    """
    return 1 + 0.55 * (threads - 1)


def _parallel(evidence: Evidence, feed: Feed) -> tuple[int, bool]:
    """Batches in the making at once, and whether they are made beside the step."""
    if feed.executor == "own" and feed == AS_IS.feed:
        return max(1, evidence.input.workers), evidence.input.workers > 0
    if feed.executor in ("processes", "threads"):
        return max(1, feed.workers), feed.workers > 0
    return 1, feed.executor == "ahead"


def fetch_time(evidence: Evidence, setup: Setup) -> tuple[float, float]:
    """Wall and CPU seconds of making a step's batches."""
    data, feed = evidence.input, setup.feed
    wall, cpu = data.fetch_s, min(data.fetch_s, data.fetch_cpu_s)
    if feed.fetch == "slice" and data.slice_s is not None:
        wall = cpu = data.slice_s
    elif feed.fetch == "cache" and data.cached_s is not None:
        wall = cpu = data.cached_s
    elif data.images is not None and data.decode_s:
        saved = data.decode_s - decode_time(evidence, setup)
        wall, cpu = max(0.0, wall - saved), max(0.0, cpu - saved)
        if setup.decoded_bytes:
            wall = max(cpu, wall - data.storage_s)
    if feed.executor == "processes":
        size = batch_bytes(evidence)
        placed = PLACED_S_PER_BYTE if size < MAPPED else MAPPED_S_PER_BYTE
        moved = size * (placed if feed.place_bytes else IPC_S_PER_BYTE)
        if data.workers == 0:
            wall, cpu = wall + moved, cpu + 2 * moved
        elif feed.place_bytes and data.made_here_s is not None:
            saved = max(0.0, cpu - data.made_here_s - moved)
            wall, cpu = max(0.0, wall - saved), cpu - saved
    batches = max(1, evidence.steps.micro_steps)
    return batches * wall, batches * cpu


def batch_bytes(evidence: Evidence) -> int:
    """Of a batch as it is collated."""
    return evidence.input.sample_bytes * max(1, evidence.input.batch_size)


def decode_time(evidence: Evidence, setup: Setup) -> float:
    """Seconds of a batch's image decoding, steady."""
    data = evidence.input
    images = data.images
    if images is None:
        return data.decode_s
    anew = data.decode_s
    if setup.scaled and not setup.decoded_bytes and images.decode_s:
        # Less than nothing where cutting and resizing are spared too.
        anew *= 1 - images.scaled_saves_s / images.decode_s
    elif setup.decoder == "simplejpeg" and images.identical:
        part = images.jpeg_share
        anew *= 1 - part + part / max(1.0, images.simplejpeg_speedup)
    if not setup.decoded_bytes or not images.kept_s:
        return anew
    memory, disk = kept_shares(evidence, setup)
    batch = max(1, data.batch_size)
    kept = min(data.decode_s, images.kept_s * batch)
    spilled = min(anew, images.spilled_s * batch) if images.spilled_s else anew
    return memory * kept + disk * spilled + (1 - memory - disk) * anew


def kept_shares(evidence: Evidence, setup: Setup) -> tuple[float, float]:
    """Shares of later epochs' images that are found in memory, and on disk.

    Each process that makes batches keeps what it decodes itself, in its part of what may be taken: an
    image that comes to another one is not found there.
    """
    need, data = decoded_bytes(evidence), evidence.input
    told = data.images.file_share if data.images is not None else 1.0
    own = setup.feed.executor == "own" and data.workers
    processes = max(1, data.workers if own else _processes(setup.feed))
    met = _met(processes, evidence.passes)
    if not need:
        return told * met, 0.0
    memory, disk = setup.decoded_bytes / processes, setup.decoded_disk_bytes / processes
    in_memory = min(1.0, memory / need)
    on_disk = min(1.0 - in_memory, disk * PIXEL_BYTES / DISK_PIXEL_BYTES / need)
    # A process that is to keep all comes to meet them all; what it has no room for it never keeps.
    return told * min(in_memory, met), told * min(on_disk, max(0.0, met - in_memory))


def _processes(feed: Feed) -> int:
    return feed.workers if feed.executor == "processes" else 1


def _met(processes: int, passes: float) -> float:
    """Share of images that a process has met before, over the epochs after the first."""
    later = max(1.0, passes - 1)
    missed: float = 1 - 1 / processes
    return 1 - processes * missed * (1 - math.pow(missed, later)) / later


def decoded_bytes(evidence: Evidence) -> float:
    """Memory that all decoded images take; 0 where it is not known."""
    images, samples = evidence.input.images, evidence.input.samples
    return images.mean_pixels * PIXEL_BYTES * samples if images and samples else 0.0


def compute_time(evidence: Evidence, setup: Setup) -> tuple[float, float, float]:
    """Wall and CPU seconds of a step without its input, and the error of that."""
    free, changes = evidence.arm("input_free"), compute_changes(setup)
    # Without a loader the arms were compared with whole steps, their input included.
    arms = [evidence.arm(names[0]) for names in changes]
    whole = free is None and any(arm is not None and arm.base == "as_is" for arm in arms)
    beside = max(0.0, evidence.steps.mean_s - evidence.free_s) if whole else 0.0
    wall = evidence.free_s + beside
    cpu = free.cpu_seconds if free is not None else evidence.steps.cpu_s
    error = 0.0
    for names in changes:
        gain, cpu_gain, width = _arm_ratio(evidence, names)
        wall /= gain
        cpu /= cpu_gain
        error = max(error, width)
    return max(LEAST_LEFT * evidence.free_s, wall - beside), cpu, error


def compute_changes(setup: Setup) -> list[tuple[str, ...]]:
    """The arms that measured each difference of ``setup``'s compute from the script's own."""
    changes: list[tuple[str, ...]] = []
    half = {None: "", "float32": "float32"}.get(setup.autocast, "bf16")
    if half == "bf16" and setup.channels_last:
        changes.append(("bf16+channels_last", "bf16", "channels_last"))
    else:
        changes += [(name,) for name in (half, "channels_last" * setup.channels_last) if name]
    for changed, name in (
        (bool(setup.fused or setup.foreach), "fused_optimizer"),
        (setup.set_to_none, "set_to_none"),
        (setup.compiled, "compile_model"),
        (setup.checkpointed, "checkpoint_activations"),
        (setup.kept_activations, "keep_activations"),
        (setup.no_unused_gradients, "no_unused_gradients"),
        (setup.tf32, "tf32"),
        (setup.cudnn_benchmark, "cudnn_benchmark"),
        (setup.flush_denormals, "flush_denormals"),
        (setup.no_anomaly_detection, "no_anomaly_detection"),
        (setup.passive and setup.threads != 1, "wait_policy"),
    ):
        if changed:
            changes.append((name,))
    if setup.threads is not None:
        changes.append((f"threads_{setup.threads}",))
    return changes


def _arm_ratio(evidence: Evidence, names: tuple[str, ...]) -> tuple[float, float, float]:
    """Gain on the wall clock and on the CPU clock, and the half width of the former."""
    joint = evidence.arm(names[0])
    if joint is not None:
        width = max(0.02, (joint.gain.high / max(joint.gain.low, 1e-3)) ** 0.5 - 1)
        return joint.gain.speedup, joint.cpu_gain.speedup, min(0.5, width)
    if len(names) == 1:
        guess = _prior(evidence, names[0])
        seen = next((a for a in evidence.arms if a.name == names[0] and a.rounds), None)
        if seen is not None and guess > 1.0 and seen.gain.high < guess / (1 + PRIOR_ERROR):
            # Too few rounds to measure by, and yet enough to rule the guess out.
            return seen.gain.speedup, seen.cpu_gain.speedup, PRIOR_ERROR
        return guess, guess, PRIOR_ERROR if guess != 1.0 else 0.1
    wall = cpu = 1.0
    error = 0.1
    for name in names[1:]:
        gain, cpu_gain, width = _arm_ratio(evidence, (name,))
        wall, cpu, error = wall * gain, cpu * cpu_gain, max(error, width)
    return wall, cpu, error


def _prior(evidence: Evidence, name: str) -> float:
    """What an arm that was not measured is taken to gain."""
    if name.startswith("threads_"):
        now = min(evidence.compute.threads, max(1, evidence.machine.cores))
        return min(1.0, math.pow(int(name.removeprefix("threads_")) / now, SCALING))
    if name == "bf16" and evidence.compute.device == "cpu" and evidence.compute.counted_s:
        return _gain_by_half(evidence)
    slowed = evidence.slowed_by_half if name == "float32" else None
    if slowed is None or not evidence.free_s:
        return PRIORS.get(name, 1.0)
    return 1 / max(LEAST_LEFT, 1 - slowed[0] / evidence.free_s)


def _gain_by_half(evidence: Evidence) -> float:
    """What bfloat16 spares of large products; the small ones of a recurrent layer's steps lose by it."""
    compute, rates = evidence.compute, evidence.machine.products
    large = sum(each.seconds for each in compute.spent if each.flops >= LARGE_PRODUCT)
    known = rates.get("float32") and rates.get("bfloat16")
    rate = rates["bfloat16"] / rates["float32"] if known else HALF_RATE
    return 1 / (1 - CONVERTED * large / compute.counted_s * (1 - 1 / max(1.0, rate)))


def without_input(setup: Setup) -> Setup:
    """The same Setup with its input free."""
    return replace(setup, free_input=True)
