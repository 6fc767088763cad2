"""cache_samples: keep samples in memory as they are collated."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.seams.setup import Setup

SHARE_OF_MEMORY = 0.5


@final
class CacheSamples(Remedy):
    """Keep every sample in memory after it was first drawn, and gather batches from there.

    Only for data sets that are deterministic, which is tried: the same sample twice is the same,
    and no random generator moves. Costs the memory of all samples, up to half of what is free.

    Helps from the second epoch on, where samples are costly to read, parse or put together.
    """

    name = "cache_samples"
    treats = ("storage", "parse", "augment", "collate")
    keeps = "exact"
    stage = 1

    def applies(self, evidence: Evidence) -> Verdict:
        """Deterministic, of fixed shape, small enough, and drawn more than once."""
        data = evidence.input
        if data.kind != "loader" or data.deterministic is None:
            return Verdict(False, "samples could not be drawn twice to compare them")
        if not data.deterministic:
            return Verdict(False, "samples are random: kept ones would no longer be")
        if data.cached_s is None or not data.samples:
            return Verdict(False, "samples have no fixed shape, or do not fit into memory")
        if data.epochs is not None and data.epochs < 2:
            return Verdict(False, "each sample is drawn once: the run has one epoch")
        need = data.samples * data.sample_bytes
        if need > self.limit(evidence):
            return Verdict(False, f"all samples take {need / 2**30:.1f} GiB")
        return Verdict(True, f"all samples take {need / 2**20:.0f} MiB")

    def limit(self, evidence: Evidence) -> int:
        """Bytes that the samples may take."""
        free = evidence.memory.limit_bytes or evidence.machine.memory_bytes
        return int(free * SHARE_OF_MEMORY)

    def settings(self, evidence: Evidence) -> Settings:
        """The memory limit in MiB."""
        return {"limit_mib": self.limit(evidence) // 2**20}

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """Batches are gathered from kept samples; worker processes could not share them."""
        executor = base.feed.executor if base.feed.executor in ("ahead", "threads") else "inline"
        limit = int(settings["limit_mib"]) * 2**20
        feed = replace(base.feed, fetch="cache", executor=executor, workers=0, cache_bytes=limit)
        return replace(base, feed=feed)
