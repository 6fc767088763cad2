"""persistent_workers: keep worker processes from one epoch to the next."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.counted import counted
from outpace.records.evidence import Evidence
from outpace.records.finding import Keeps
from outpace.records.gain import NO_GAIN, Gain
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import data_change, set_loader_arguments
from outpace.remedies.model import gain_without
from outpace.seams.setup import AS_IS, Setup

WORTH = 0.02
"""share of an epoch that starting and ending workers must take"""
ENDING = 0.8
"""time of ending workers over that of starting them, as seen with forked ones"""


@final
class PersistentWorkers(Remedy):
    """Keep the script's worker processes alive instead of starting them anew each epoch.

    Helps where epochs are short against the start of the workers, most of all where these are
    spawned and import everything again, or where each step makes an iterator of its own. Forked ones
    share the training's memory, which is copied page by page as it is written to next: an epoch's first
    step may take several times as long. Costs the workers' memory between epochs, during validation for
    one.

    Keeps every bit where samples are deterministic. Workers that draw random numbers go on with
    their generators instead of being seeded again. The gain is of whole epochs: steady steps are
    as before, so it takes whole epochs to measure it.
    """

    name = "persistent_workers"
    treats = ("ipc", "startup")
    keeps = "exact"
    stage = 3
    gain_of = "epochs"

    def applies(self, evidence: Evidence) -> Verdict:
        """The script must start workers again and again, for short epochs."""
        data = evidence.input
        if data.kind != "loader" or not data.workers:
            return Verdict(False, "the script has no worker processes")
        if data.persistent:
            return Verdict(False, "the workers are persistent already")
        if data.anew:
            return Verdict(
                False, "each epoch has a DataLoader of its own: make one for all of them"
            )
        if data.epochs is not None and data.epochs < 2:
            return Verdict(False, "the run has one epoch")
        share = self.churn(evidence)
        whole = "a step" if data.restarts else "an epoch"
        reason = f"starting and ending {counted(data.workers, 'worker')} takes {100 * share:.0f} % of {whole}"
        return Verdict(share >= WORTH, reason)

    def churn(self, evidence: Evidence) -> float:
        """Share of an epoch, or of a step that begins one, that starting and ending the workers takes."""
        data, step = evidence.input, evidence.steps.mean_s
        lost = max(0.0, data.epoch_start_s - data.fetch_s) * (1 + ENDING)
        if data.restarts:
            most = step - evidence.free_s - data.fetch_s
            return max(0.0, min(lost, most)) / step if step else 0.0
        steps = evidence.steps_of_epoch
        epoch = steps * step + data.epoch_start_s * (1 + ENDING)
        return lost / epoch if epoch and steps else 0.0

    def predict(
        self, evidence: Evidence, settings: Settings | None = None, accepted: Setup = AS_IS
    ) -> Gain:
        """What is left of an epoch's start is the making of its first batch."""
        if accepted.feed != AS_IS.feed:
            return NO_GAIN
        share = self.churn(evidence)
        return gain_without(share, 0.5 * share, min(0.95, 1.2 * share))

    def settings(self, evidence: Evidence) -> Settings:
        """The script's own number of workers and of batches ahead."""
        data = evidence.input
        return {"workers": data.workers, "batches": data.prefetch_factor or 2}

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """The script's workers, kept; nothing where batches are made in another way by now."""
        if base.feed.executor != "own" or base.feed.fetch != "items":
            return base
        feed = replace(
            base.feed,
            executor="processes",
            workers=int(settings["workers"]),
            prefetch=int(settings["batches"]),
            persistent=True,
        )
        return replace(base, feed=feed)

    def kept(self, evidence: Evidence, settings: Settings | None = None) -> Keeps:
        """Random samples draw from generators that are not seeded again."""
        return "numerics" if evidence.input.by_chance else "exact"

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """``persistent_workers=True``, where these need not be told of changes."""
        if data_change(source, evidence.input.where):
            return source
        return set_loader_arguments(source, evidence.input.where, {"persistent_workers": "True"})
