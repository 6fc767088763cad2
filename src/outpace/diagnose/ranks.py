"""Processes that train together: each at its own pace, and what of it the others wait for."""

from __future__ import annotations

from typing import NamedTuple

from outpace.records.arm import COMMUNICATION_FREE
from outpace.records.evidence import Evidence, Rank


class Pace(NamedTuple):
    """Seconds of a rank's step without exchange, with the limits of a 95 % interval."""

    middle: float
    low: float
    high: float


class Straggler(NamedTuple):
    """The slowest rank, and what the next slowest are."""

    rank: Rank
    own: Pace
    others: list[Pace]

    @property
    def next_s(self) -> float:
        """A step of the next slowest."""
        return max(pace.middle for pace in self.others)

    @property
    def gap_s(self) -> float:
        """What it takes longer than that one."""
        return self.own.middle - self.next_s


def own_seconds(rank: Rank) -> Pace:
    """A rank's step at its own pace."""
    free = rank.free
    return Pace(rank.step_s / free.speedup, rank.step_s / free.high, rank.step_s / free.low)


def exchange_seconds(evidence: Evidence) -> float:
    """Seconds of a step in which this rank waits for others, in its backward pass."""
    own = evidence.arm(COMMUNICATION_FREE)
    free = evidence.ranks[0].free if evidence.ranks else own.gain if own is not None else None
    if free is None or not evidence.together:
        return 0.0
    return max(0.0, evidence.steps.mean_s * (1 - 1 / free.speedup))


def straggler(evidence: Evidence) -> Straggler | None:
    """The slowest of ranks that train together; None where nobody waits for it."""
    if not evidence.ranks:
        return None
    slowest = max(evidence.ranks, key=lambda rank: own_seconds(rank).middle)
    others = [own_seconds(rank) for rank in evidence.ranks if rank != slowest]
    found = Straggler(slowest, own_seconds(slowest), others)
    waited = evidence.steps.mean_s - found.next_s
    return found if waited >= 0.5 * found.gap_s else None


def straggles_by_input(evidence: Evidence) -> float:
    """Seconds by which the slowest rank is slower for its input; 0 where it computes for longer."""
    found = straggler(evidence)
    if found is None:
        return 0.0
    waits = found.rank.input_s - min(rank.input_s for rank in evidence.ranks)
    # Without more than the gap it is not the slowest any more.
    return min(waits, found.gap_s) if waits > 0.5 * found.gap_s else 0.0


def input_of_all(evidence: Evidence) -> float:
    """Seconds that a step would be shorter by if no rank waited for input, beyond what a straggler does."""
    paces = [(own_seconds(rank).middle, rank.input_s) for rank in evidence.ranks]
    spared = max(own for own, _ in paces) - max(own - waits for own, waits in paces)
    return max(0.0, spared - straggles_by_input(evidence))
