"""Rows of the table of bottlenecks: processes that train together."""

from __future__ import annotations

from collections.abc import Iterator

from outpace.diagnose import ranks
from outpace.diagnose.costs import ERROR, of_step
from outpace.diagnose.told import Told
from outpace.records.evidence import Evidence


def straggler(evidence: Evidence) -> Iterator[Told]:
    """One rank is slower than the others, which wait for it.

    Where it waits for its input it could be as fast as they are; where it computes for longer, its
    work could be shared.
    """
    found = ranks.straggler(evidence)
    if found is None:
        return
    slowest, own, others = found
    waits = ranks.straggles_by_input(evidence)
    if waits:
        # Clocked: without exchange the others do not compute beside it, and are faster than together.
        cost = of_step(evidence, waits, (1 - ERROR) * waits, (1 + ERROR) * waits, "predicted")
    else:
        part = 1 - 1 / len(evidence.ranks)
        low = own.low - max(pace.high for pace in others)
        high = own.high - max(pace.low for pace in others)
        cost = of_step(evidence, part * found.gap_s, part * max(0.0, low), part * max(0.0, high))
    why = "waits for its batches" if waits else "computes"
    yield Told(
        cost,
        slowest.input_where if waits else slowest.compute_where,
        f"rank {slowest.rank} takes {1e3 * own.middle:.1f} ms for a step of its own, the next slowest "
        f"{1e3 * found.next_s:.1f}: it {why} for longer",
    )


def allreduce(evidence: Evidence) -> Iterator[Told]:
    """Exchanging gradients, beyond what hides behind the backward pass."""
    if not evidence.ranks:
        return
    paces = [ranks.own_seconds(rank) for rank in evidence.ranks]
    whole = evidence.steps.mean_s
    seconds = whole - max(pace.middle for pace in paces)
    low, high = whole - max(p.high for p in paces), whole - max(p.low for p in paces)
    cost = of_step(evidence, max(0.0, seconds), max(0.0, low), max(0.0, high))
    kib = evidence.compute.learnt_bytes / 2**10
    size = f"{kib / 2**10:.0f} MiB" if kib >= 2**10 else f"{kib:.0f} KiB"
    own = (
        ", and without the collectives that the script calls,"
        if evidence.compute.exchange_where
        else ""
    )
    yield Told(
        cost,
        evidence.compute.exchange_where or evidence.compute.where,
        f"without exchanging {size} of gradients{own} a step would be "
        f"{1e3 * max(0.0, seconds):.1f} of its {1e3 * whole:.1f} ms shorter",
    )
