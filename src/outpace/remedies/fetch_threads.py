"""fetch_threads: draw the samples of a batch with many threads."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.finding import Keeps
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import add_import, add_method, insert_after_imports, made_here, moved
from outpace.remedies.prefetch import drawn_ahead, the_same_sooner
from outpace.remedies.room import edit_room, keeps_threads, ways, with_room
from outpace.seams.setup import Setup

FEWEST, MOST = 4, 64
WORTH = 0.3
"""share of a fetch that must be waiting, or decoding, for threads to help"""
MANY = """
def __getitems__(self, indices):
    return list(fetchers(os.getpid()).map(self.__getitem__, indices))
"""
POOL = '''
@functools.cache
def fetchers(process):
    """Threads of this process: a worker that is forked later has none of those begun before."""
    return ThreadPoolExecutor({threads})
'''


@final
class FetchThreads(Remedy):
    """Draw the samples of each batch with many threads of this process, a batch or two ahead.

    Helps most where samples wait for a disk or a network and hardly compute: threads that wait
    cost nothing, and there may be many more of them than cores. Helps too where samples are
    decoded by code that lets other threads run (JPEG decoding does), then with a thread a core.
    Does nothing for samples that Python itself computes, since one thread runs Python at a time.

    Keeps every bit where samples are deterministic. Where they draw random numbers, threads draw
    them in another order; a sum that torch takes on several threads has other last bits on one, which
    is tried. The data set must bear calls from several threads. One that seeks in a single open file
    does not, nor one that keeps the shard it read last, or a buffer: these are left alone where such a
    file is found, or where the source of what makes a sample sets an attribute.
    """

    name = "fetch_threads"
    treats = ("storage", "parse")
    keeps = "exact"
    stage = 2

    def applies(self, evidence: Evidence) -> Verdict:
        """Samples must wait, or be decoded, for a good part of their time."""
        data = evidence.input
        if data.kind != "loader" or not data.fetch_s:
            return Verdict(False, "batches do not come from a DataLoader over a map-style data set")
        waits, decodes = data.storage_s / data.fetch_s, data.decode_s / data.fetch_s
        if waits >= WORTH:
            return Verdict(True, f"{100 * waits:.0f} % of making a batch is waiting for storage")
        if decodes >= WORTH and evidence.machine.cores > 1:
            return Verdict(True, f"{100 * decodes:.0f} % of making a batch is decoding")
        return Verdict(
            False,
            f"samples neither wait ({100 * waits:.0f} %) nor are decoded ({100 * decodes:.0f} %), "
            "and one thread runs Python at a time",
        )

    def settings(self, evidence: Evidence) -> Settings:
        """As many threads as keep the waiting below the work; the cores where it is decoding."""
        return self.alternatives(evidence)[0]

    def alternatives(self, evidence: Evidence) -> list[Settings]:
        """With either way to make room for the threads, where the step's own use all cores."""
        threads = self.count(evidence)
        # Threads that mostly wait are together taken for one that computes.
        waits = evidence.input.storage_s >= WORTH * evidence.input.fetch_s
        return [{"threads": threads, **way} for way in ways(evidence, 1 if waits else threads)]

    def count(self, evidence: Evidence) -> int:
        """Threads that draw samples."""
        data = evidence.input
        if data.storage_s < WORTH * data.fetch_s:
            return max(2, evidence.machine.cores)
        free_s = evidence.free_s / max(1, evidence.steps.micro_steps)  # for each batch
        works = max(data.fetch_s - data.storage_s, free_s, 1e-3 * data.fetch_s, 1e-9)
        wanted = min(MOST, max(FEWEST, math.ceil(2 * data.storage_s / works)))
        return max(2, min(wanted, data.batch_size or wanted))

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """Threads draw single samples, unless batches are sliced or kept already."""
        if base.feed.fetch != "items":
            return base
        feed = replace(
            base.feed, executor="threads", workers=int(settings["threads"]), persistent=False
        )
        return with_room(replace(base, feed=feed), settings)

    def kept(self, evidence: Evidence, settings: Settings | None = None) -> Keeps:
        """Random samples draw in another order; what a step changes is seen some batches later."""
        here = not self.redraws(evidence) and the_same_sooner(evidence)
        exact = keeps_threads(settings) and here
        return "exact" if exact else "numerics"

    def redraws(self, evidence: Evidence) -> bool:
        """Random samples draw in another order, those of other loaders too."""
        return evidence.input.by_chance

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """The data set draws the samples of a batch with a pool of threads, a batch ahead."""
        data = evidence.input
        changed = add_method(source, data.drawn_by, "__getitem__", MANY)
        changed = made_here(source, changed, data.where, data.workers)
        ahead = drawn_ahead(changed, moved(data.where, source, changed))
        if changed in (source, ahead):
            return source
        changed = insert_after_imports(ahead, POOL.format(threads=settings["threads"]))
        changed = add_import(add_import(changed, "functools"), "os")
        return edit_room(changed, settings, evidence)
