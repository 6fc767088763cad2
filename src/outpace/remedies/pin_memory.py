"""pin_memory: batches in page-locked memory, copied while the host goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.finding import Keeps
from outpace.records.gain import NO_GAIN, Gain
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import (
    copy_without_waiting,
    has_workers,
    moved,
    set_loader_arguments,
)
from outpace.remedies.model import gain_without
from outpace.remedies.prefetch import (
    drawn_ahead,
    is_drawn_ahead,
    shared_streams,
    the_same_sooner,
)
from outpace.seams.setup import AS_IS, Setup


@final
class PinMemory(Remedy):
    """Put batches into page-locked memory and copy them to the GPU without waiting.

    From such memory a copy runs at the bus's speed and beside the host's work; from ordinary
    memory it is first copied on the host, and the host waits.

    Helps where copies to the device take a visible part of a step. Costs host memory that cannot
    be swapped out. Only for CUDA. A loader without workers is given a thread that works ahead and
    pins. Keeps every bit, but for what `prefetch` says of random samples.
    """

    name = "pin_memory"
    treats = ("transfer",)
    keeps = "exact"
    stage = 2

    def applies(self, evidence: Evidence) -> Verdict:
        """The model must be on a CUDA device, the batches in ordinary memory."""
        data = evidence.input
        if evidence.compute.device != "cuda":
            return Verdict(False, "the model is not on a CUDA device")
        if data.kind not in ("loader", "iterable"):
            return Verdict(False, "batches do not come from a DataLoader")
        if data.pinned:
            return Verdict(False, "batches are in page-locked memory already")
        return Verdict(True, "batches are copied to the device from ordinary memory")

    def predict(
        self, evidence: Evidence, settings: Settings | None = None, accepted: Setup = AS_IS
    ) -> Gain:
        """Most of what the step gains when its copies are free, as measured."""
        arm = evidence.arm("transfer_free")
        if arm is None or accepted.feed.pin:
            return NO_GAIN
        saved = max(0.0, 1 - 1 / arm.gain.speedup)
        return gain_without(0.7 * saved, 0.2 * saved, max(saved, 1 - 1 / max(1.0, arm.gain.high)))

    def settings(self, evidence: Evidence) -> Settings:
        """The script's own workers go on."""
        data = evidence.input
        return {
            "workers": data.workers,
            "batches": data.prefetch_factor or 2,
            "persistent": data.persistent,
        }

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """Whoever makes the batches pins them."""
        feed, workers = base.feed, int(settings["workers"])
        batches, persistent = int(settings["batches"]), bool(settings["persistent"])
        if feed.executor == "own" and workers:
            feed = replace(
                feed,
                executor="processes",
                workers=workers,
                prefetch=batches,
                persistent=persistent,
            )
        elif feed.executor == "own":
            feed = replace(feed, executor="ahead")
        return replace(base, feed=replace(feed, pin=True))

    def kept(self, evidence: Evidence, settings: Settings | None = None) -> Keeps:
        """Exact with workers, which stay as they were; else as `prefetch` keeps."""
        data = evidence.input
        known = data.deterministic is not None and the_same_sooner(evidence)
        exact = data.workers or (known and not shared_streams(evidence))
        return "exact" if exact and not data.others_random else "numerics"

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """``pin_memory=True`` and ``non_blocking=True``."""
        where = evidence.input.where
        changed = set_loader_arguments(source, where, {"pin_memory": "True"})
        changed = copy_without_waiting(changed, where)
        if evidence.input.workers or has_workers(changed, moved(where, source, changed)):
            return changed
        if is_drawn_ahead(changed):
            return changed
        ahead = drawn_ahead(changed, moved(where, source, changed))
        return source if ahead == changed else ahead
