"""Rows of the table of bottlenecks: memory, its bandwidth, and what fills it."""

from __future__ import annotations

from collections.abc import Iterator

from outpace.diagnose.costs import SURELY_MOVED, at_bandwidth, compute_cost, moving_seconds, of_step
from outpace.diagnose.told import Told
from outpace.records.counted import counted
from outpace.records.evidence import Evidence

LEAST_MOVING, LEAST_MOVING_GPU = 0.1, 0.25
"""share of a step's computing that moving memory takes before it is told; on a GPU, on which any training
moves some, by the bytes alone"""
MOST_COPIED = 0.1
"""share of the memory that workers may come to copy before it is told, though none has by now"""
WORTH_NAMING = 1 << 23
"""bytes of Python objects in a data set below which they do not explain a growth"""
HISTORY = 1 << 12
"""bytes a step that a history of losses and metrics may take: no leak, unless it lasts for too long"""
FAR = 100
"""times the steps seen that memory is to last, where the length of the run is not known"""


def capacity(evidence: Evidence) -> Iterator[Told]:
    """Memory nearly full."""
    memory = evidence.memory
    if memory.peak_bytes and memory.full > 0.9:
        yield Told(
            of_step(evidence, 0.0, 0.0, 0.0),
            evidence.compute.where,
            f"a step's tensors take {memory.peak_bytes / 2**30:.2f} GiB and the rest of the process "
            f"{memory.beside_bytes / 2**30:.2f}, of {memory.limit_bytes / 2**30:.2f} GiB",
        )


def bandwidth(evidence: Evidence) -> Iterator[Told]:
    """Element-wise operators that each read and write all of a large tensor."""
    seconds = moving_seconds(evidence)
    compute = evidence.compute
    on_gpu = compute.device != "cpu"
    least = LEAST_MOVING_GPU if on_gpu else LEAST_MOVING
    if not seconds or seconds < least * compute_cost(evidence):
        return
    cost = of_step(evidence, seconds, SURELY_MOVED * seconds, 1.1 * seconds, "predicted")
    at_best = at_bandwidth(evidence) or seconds
    fresh = compute.fresh_bytes > 0 and evidence.paging_s > at_best
    if on_gpu:
        yield Told(
            cost,
            compute.where,
            "operations on more than the caches hold that take longer to move it than to compute take "
            f"{1e3 * seconds:.1f} of {1e3 * cost.whole_s:.1f} ms of a step at this GPU's bandwidth: "
            "fused kernels (torch.compile, scaled_dot_product_attention) and half precision move less",
        )
        return
    yield Told(
        cost,
        compute.moving_where,
        f"element-wise operations on more than the caches hold take {1e3 * seconds:.0f} of "
        f"{1e3 * cost.whole_s:.0f} ms of a step: they move {compute.moved_bytes / 2**30:.2f} GiB, "
        f"{1e3 * at_best:.0f} ms at this machine's bandwidth"
        + (", and fill fresh pages" if fresh else ""),
    )


def leak(evidence: Evidence) -> Iterator[Told]:
    """Memory that grows with every step."""
    memory, data = evidence.memory, evidence.input
    # Growth and limit are a GPU's where the training is on one; workers are on the machine in any case.
    there = (
        memory.limit_bytes if evidence.compute.device == "cpu" else evidence.machine.memory_bytes
    )
    objects = (
        f"{data.copied_holder or 'the data set'} holds some {float(f'{data.copied_objects:.2g}'):,.0f}, "
        f"{data.copied_bytes / 2**20:.0f} MiB"
    )
    if data.workers and data.worker_growth_bytes:
        yield Told(
            of_step(evidence, 0.0, 0.0, 0.0),
            data.places[0][0] if data.places else data.where,
            f"{counted(data.workers, 'worker comes', 'workers come')} to own "
            f"{data.worker_growth_bytes / 2**20:.2f} MiB more a step: "
            "they keep what they read, or read Python objects, whose reference counts have each worker "
            "copy their pages (arrays and tensors have none)"
            + (f"; {objects}" if data.copied_bytes > WORTH_NAMING else ""),
        )
    elif data.workers * data.copied_bytes > MOST_COPIED * there > 0:
        yield Told(
            of_step(evidence, 0.0, 0.0, 0.0),
            data.where,
            f"each of {counted(data.workers, 'worker')} will copy the Python objects that it reads: "
            f"{objects}, of {there / 2**30:.1f} GiB for all (arrays of numbers or of text are not copied)",
        )
    if memory.growth_low <= 0:
        return
    total, count = evidence.run.total_steps, evidence.steps.count
    left: float = max(1, (total or FAR * count) - count)
    # A data set that keeps its samples has all of them after an epoch, and outputs are kept to judge by.
    of_epoch = data.again_s is not None or memory.retained_data
    filling = of_epoch and (data.batches or 0) / max(1, evidence.steps.micro_steps) - count
    if filling and filling > 0:
        left = filling
    on_gpu = evidence.compute.device != "cpu" and memory.peak_bytes
    if on_gpu and memory.growth_seen_by in (None, "cuda"):
        held, limit = memory.beside_bytes + memory.peak_bytes, memory.limit_bytes
    else:
        held, limit = memory.rss_bytes, there
    grows = memory.growth_bytes_step * left
    ends = held + min(grows, memory.growth_room or grows) > limit > 0
    lasts = max(0.0, limit - held) / memory.growth_bytes_step
    what = f"; {memory.retained_name} keeps what it is given" if memory.retained_name else ""
    kept = memory.retained_name and memory.growth_bytes_step > HISTORY
    if (left == filling or memory.growth_room) and not ends:
        return
    if ends or memory.growth_bytes_step > 2**20 or kept:
        yield Told(
            of_step(evidence, 0.0, 0.0, 0.0),
            memory.retained_where,
            f"memory grows by {memory.growth_bytes_step / 2**20:.2f} MiB a step{what}"
            + ("; it will not last to the end of the run" if ends and total else "")
            + (f"; it lasts for {lasts:,.0f} more steps" if ends and not total else ""),
        )
