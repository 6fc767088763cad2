"""cache_samples: keep samples in memory as they are collated."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import (
    data_change,
    hands_samples_out,
    insert_after_imports,
    made_here,
    wrap_data_set,
)
from outpace.remedies.slice_batches import OTHERS_HERE, beside
from outpace.seams.setup import Setup

SHARE_OF_MEMORY = 0.5
OBJECTS = 1024
"""bytes that Python takes for a sample by itself: its tuple and its tensors"""
IN_MEMORY = '''
def in_memory(dataset):
    """All samples, drawn once."""
    return [dataset[i] for i in range(len(dataset))]
'''


@final
class CacheSamples(Remedy):
    """Keep every sample in memory after it was first drawn, and gather batches from there.

    Only for data sets that are deterministic, which is tried: the same sample drawn twice is the
    same, and no random generator moves. Costs the memory of all samples, up to half of what is
    free, or less as `outpace tune --ram` says; images that `cache_decoded` would keep are not needed any
    more.

    Helps from the second epoch on, where samples are costly to read, parse or put together. Gives
    nothing to a run of one epoch. Worker processes are given up: each would keep its own samples.

    Keeps every bit, which is checked on the first batch of every epoch, and by a checksum of what the
    data set holds: one that changes from epoch to epoch is drawn as before from there on. One that holds
    too much to be looked at, and changes a few of its samples, may go on unseen; leave this out for such.
    """

    name = "cache_samples"
    treats = ("storage", "parse", "augment", "collate", "ipc")
    keeps = "exact"
    stage = 1

    def applies(self, evidence: Evidence) -> Verdict:
        """Deterministic, of fixed shape, small enough, and drawn more than once."""
        data = evidence.input
        if data.kind != "loader" or data.deterministic is None:
            return Verdict(False, "samples could not be drawn twice to compare them")
        if not data.deterministic:
            if not data.random_streams:
                return Verdict(False, "the same sample is not always the same: kept ones would be")
            return Verdict(False, "samples are random: kept ones would no longer be")
        if data.others_here:
            return Verdict(False, OTHERS_HERE)
        if data.fed_back:
            return Verdict(False, "the script changes what samples are made by from batch to batch")
        if data.cached_s is None or not data.samples:
            return Verdict(False, "samples have no fixed shape, or do not fit into memory")
        if data.epochs is not None and data.epochs < 2:
            return Verdict(False, "each sample is drawn once: the run has one epoch")
        need, limit = data.samples * data.sample_bytes, self.limit(evidence)
        if need > limit:
            reason = f"all samples take {need / 2**30:.1f} GiB, {limit / 2**30:.1f} may be taken"
            return Verdict(False, reason)
        return Verdict(True, f"all samples take {need / 2**20:.0f} MiB of {limit / 2**20:.0f}")

    def limit(self, evidence: Evidence) -> int:
        """Bytes that the samples may take."""
        return free_for_caches(evidence)

    def settings(self, evidence: Evidence) -> Settings:
        """The memory limit in MiB."""
        return {"limit_mib": self.limit(evidence) // 2**20}

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """Batches are gathered from kept samples; sliced ones cost little and stay as they are."""
        if base.feed.fetch == "slice":
            return base  # filling the cache would draw the first epoch sample by sample
        feed = replace(
            base.feed,
            fetch="cache",
            executor=beside(base.feed),
            workers=0,
            persistent=False,
            cache_bytes=int(settings["limit_mib"]) * 2**20,
        )
        return replace(base, feed=feed, decoded_bytes=0, decoded_disk_bytes=0, scaled=False)

    def redraws(self, evidence: Evidence) -> bool:
        """Random samples of another loader, whose workers are given up too, draw elsewhere."""
        return evidence.input.others_random

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """The data set goes through a function that draws it whole."""
        data = evidence.input
        size = (data.samples or 0) * (data.sample_bytes + OBJECTS)
        if size > int(settings.get("limit_mib", size)) * 2**20 or data_change(source, data.where):
            return source
        if data.anew:
            return source  # what a loader has drawn would go with it
        if hands_samples_out(source, data.where):
            return source  # what was done to a sample would be done to it in each epoch
        changed = wrap_data_set(source, data.where, "in_memory")
        changed = made_here(source, changed, data.where, data.workers)
        if changed == source:
            return source
        return insert_after_imports(changed, IN_MEMORY)


def free_for_caches(evidence: Evidence) -> int:
    """Bytes that a cache may take: half of the memory that is free, or less where the user says so."""
    memory, free = evidence.memory, evidence.memory.free_bytes
    if free is None:
        free = evidence.machine.memory_bytes - memory.rss_bytes
    if memory.limit_bytes and evidence.compute.device == "cpu":  # else it is the device's
        free = min(free, memory.limit_bytes - memory.rss_bytes)
    return evidence.cache_limits.memory(int(SHARE_OF_MEMORY * max(0, free)))
