"""Whether the memory that workers of a DataLoader own grows while they only read.

A forked worker shares its parent's pages until it writes to them, and reading a Python object writes
its reference count: lists of many small objects come to be owned by every worker, page by page.
Resident memory does not show it, as shared pages count too; what the kernel calls private does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

FEWEST = 3
SURE = 1 << 24
"""bytes of growth from the first look to the last below which nothing is said"""
STILL = 0.2
"""share of the growth that the later half must have, and all but its largest part: what fills up at first, or
comes at once, is not a growth
"""
PROC = Path("/proc")


class WorkerMemory:
    """Looks now and then at what processes own."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self.pids = pids
        self.looks: list[tuple[int, dict[int, int]]] = []

    def look(self, steps: int) -> None:
        """Note what each owns after so many steps; new workers begin anew."""
        owned = {pid: own for pid in self.pids() if (own := private_bytes(pid)) is not None}
        if self.looks and owned.keys() != self.looks[-1][1].keys():
            self.looks = []
        if owned:
            self.looks.append((steps, owned))

    def growth(self) -> float:
        """Bytes a step, of all together; 0 where no growth is sure."""
        if len(self.looks) < FEWEST:
            return 0.0
        totals = [sum(owned.values()) for _, owned in self.looks]
        grown, later = totals[-1] - totals[0], totals[-1] - totals[len(totals) // 2]
        largest = max(after - before for before, after in pairwise(totals))
        steps = self.looks[-1][0] - self.looks[0][0]
        if grown < SURE or min(later, grown - largest) < STILL * grown or steps <= 0:
            return 0.0
        return grown / steps


def private_bytes(pid: int, proc: Path = PROC) -> int | None:
    """Memory that a process shares with no other; None where the system does not tell."""
    try:
        for line in (proc / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Private_Dirty:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None
