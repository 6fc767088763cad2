"""Memory of a step, and its growth, as they were measured."""

from __future__ import annotations

from typing import Literal

import msgspec


class ByKind(msgspec.Struct, frozen=True):
    """Bytes at the peak of a step."""

    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    temporaries: int = 0
    other: int = 0


class Memory(msgspec.Struct, frozen=True):
    """Memory of a step and its growth over steps.

    ``limit_bytes``: the tightest of the device's, the machine's, its cgroups' and the process's own.
    """

    peak_bytes: int = 0
    """of the step's tensors, those of the model and the optimizer included"""
    by_kind: ByKind = ByKind()
    limit_bytes: int = 0
    rss_bytes: int = 0
    """resident, without pages of mapped files"""
    growth_bytes_step: float = 0.0
    growth_low: float = 0.0
    growth_seen_by: Literal["cuda", "heap", "rss"] | None = None
    """of a GPU's memory, or of the machine's; None where that is not known"""
    growth_room: float | None = None
    """bytes that it may grow by at the most, as they were taken before; None where nothing tells"""
    retained_where: str | None = None
    retained_name: str | None = None
    retained_data: bool = False
    """what it keeps has no graphs, as the outputs of an epoch"""
    beside_bytes: int = 0
    """what else counts against the limit: libraries, data in memory, other tensors"""
    free_bytes: int | None = None
    """of the machine's own, what this process might still take; None where nobody looked"""

    @property
    def full(self) -> float:
        """Share of the limit that is taken at the peak of a step; 0 where there is no limit."""
        return self.full_at(1.0)

    def full_at(self, scale: float) -> float:
        """The same with ``scale`` times the batch: what a step makes grows with it, at the most."""
        kinds = self.by_kind
        made = kinds.activations + kinds.temporaries + kinds.other
        taken = self.beside_bytes + self.peak_bytes + (scale - 1.0) * made
        return taken / self.limit_bytes if self.limit_bytes else 0.0
