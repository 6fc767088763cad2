"""loader_workers: make batches in worker processes."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.counted import counted
from outpace.records.evidence import Evidence
from outpace.records.finding import Keeps
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import data_change, set_loader_arguments
from outpace.remedies.edits.loaders import OF_WORKERS
from outpace.remedies.model import batch_bytes
from outpace.remedies.room import edit_room, keeps_threads, ways, with_room
from outpace.seams.setup import Executor, Setup

CHANGED = (
    "the script changes what samples are made by from batch to batch, which workers would not see"
)
RUNS_ANEW = (
    "each worker would run the script anew, which has no `if __name__ == ...` around what it does"
)
LARGE = 1 << 18
"""bytes of a batch whose pages are worth a place that is used again"""


@final
class LoaderWorkers(Remedy):
    """Make batches in as many worker processes as pay, or in none where workers harm.

    The number comes from CPU seconds: workers and compute share the cores, and each batch has to
    pass between processes. With cheap samples workers are slower than none. Large batches are written
    to places in shared memory that are used again and again: in memory of its own each page of each
    batch is a fault on both sides. PyTorch has no such places: an edit of the script is without them.

    Keeps the same bits where samples are deterministic. Where the data set draws random numbers
    each worker has its own, so that augmentations differ from those without workers. A sum that torch
    takes on several threads has other last bits on the one of a worker, which is tried. A data set
    that keeps a file open is left alone: forked workers would share the place in it.
    """

    name = "loader_workers"
    treats = ("storage", "parse", "augment", "collate", "ipc")
    keeps = "exact"
    stage = 2

    def applies(self, evidence: Evidence) -> Verdict:
        """There must be a DataLoader whose batches cost something."""
        data = evidence.input
        if data.kind != "loader":
            return Verdict(False, "batches do not come from a DataLoader over a map-style data set")
        if data.fed_back:
            return Verdict(False, CHANGED)
        if data.runs_anew and not data.workers:
            return Verdict(False, RUNS_ANEW)
        chosen = self.settings(evidence)
        best = chosen["workers"]
        if best != data.workers:
            now = counted(int(best), "worker")
            return Verdict(True, f"{now} instead of {data.workers}, by CPU seconds a batch")
        if "place_bytes" in chosen:
            who = counted(int(best), "worker that writes", "workers that write")
            return Verdict(True, f"{who} batches to the same memory again")
        return Verdict(False, f"as many workers as there are, {best}, are predicted to be best")

    def alternatives(self, evidence: Evidence) -> list[Settings]:
        """Numbers of workers by predicted gain."""
        cores = max(1, evidence.machine.cores)
        own, places = evidence.input.workers, placed(evidence)
        counts = sorted({0, 1, 2, cores // 2, cores} - {own}) + [own] * (own > 0 and bool(places))
        waits = evidence.input.storage_s > 0.5 * evidence.input.fetch_s
        if waits:
            counts += [2 * cores]
        options: list[Settings] = [
            {"workers": n, **(places if n else {}), **way}
            for n in counts
            if n <= 2 * cores or n == own
            for way in ways(evidence, n)
        ]
        return sorted(options, key=lambda s: -self.predict(evidence, s).speedup)

    def settings(self, evidence: Evidence) -> Settings:
        """The best number by prediction, the present one included."""
        best = self.alternatives(evidence)[0]
        present: Settings = {"workers": evidence.input.workers}
        return best if self.predict(evidence, best).speedup > 1.02 else present

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """Batches are made by worker processes; persistent, as nothing is gained by ending them."""
        if base.feed.fetch != "items":
            return base  # Batches that are sliced or kept already cost less than moving them.
        workers = int(settings["workers"])
        executor: Executor = "processes" if workers else "inline"
        feed = replace(
            base.feed,
            executor=executor,
            workers=workers,
            persistent=workers > 0,
            place_bytes=int(settings.get("place_bytes", 0)),
        )
        return with_room(replace(base, feed=feed), settings)

    def kept(self, evidence: Evidence, settings: Settings | None = None) -> Keeps:
        """Random samples differ in other processes, and sums on another number of threads."""
        data = evidence.input
        sooner = data.own_sampler and not data.workers  # its order is asked for before the steps
        exact = keeps_threads(settings) and not self.redraws(evidence) and not sooner
        return "exact" if exact else "numerics"

    def redraws(self, evidence: Evidence) -> bool:
        """Random samples draw in another order, those of other loaders too."""
        return evidence.input.by_chance

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """``num_workers`` in the DataLoader's construction."""
        arguments: dict[str, str | None] = {"num_workers": str(settings["workers"])}
        data = evidence.input
        lasts = settings["workers"] and (data.persistent or not data_change(source, data.where))
        arguments["persistent_workers"] = "True" if lasts else None
        if not settings["workers"]:
            arguments |= dict.fromkeys(OF_WORKERS)
        changed = set_loader_arguments(source, data.where, arguments)
        return source if changed == source else edit_room(changed, settings, evidence)


def placed(evidence: Evidence) -> Settings:
    """The setting for places in shared memory, where batches are so large that it matters."""
    size = batch_bytes(evidence)
    return {"place_bytes": size} if size >= LARGE and not evidence.input.pinned else {}
