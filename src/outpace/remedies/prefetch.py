"""prefetch: make batches ahead in a thread."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.counted import counted
from outpace.records.evidence import Evidence
from outpace.records.finding import Keeps
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import add_import, insert_after_imports, wrap_loop
from outpace.remedies.room import edit_room, keeps_threads, ways, with_room
from outpace.seams.setup import Setup

DEPTH = 3
AHEAD = '''
class Ahead:
    """Draws each batch in a thread while the step before it runs."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        with ThreadPoolExecutor(1) as thread:
            batches, end = iter(self.batches), object()
            coming = thread.submit(next, batches, end)
            while (batch := coming.result()) is not end:
                coming = thread.submit(next, batches, end)
                yield batch
'''


@final
class Prefetch(Remedy):
    """Make the next batches in one thread while the step computes.

    Helps where making a batch lets other threads run (decoding, numpy, waiting) or the step does.
    It needs no further process and no copy between processes. Harms where Python itself makes the samples:
    both then take turns at the interpreter, and longer than one after the other; how much of its time
    making a batch keeps it from others is tried. Where the step's threads use all cores
    they are put to sleep while they wait (see wait_policy), as spinning they would take the cores; or
    the step leaves a core to the thread, which is quicker where operations are small but sums
    numbers in another order.

    The thread draws the samples in the script's own order. So every bit is kept, random
    augmentation included, as long as the step itself does not draw from the generators that the
    samples draw from (dropout and torch-based augmentation both draw from torch's), and no validation
    comes in mid-epoch; else random numbers are dealt out in another order. So they are where a loop
    leaves an epoch early: it finds the generators some batches further on. A data set or sampler that
    the script changes from batch to batch, as by the loss, hears of it some batches later; one that a
    validation in mid-epoch draws from too may be found as it is set for that.
    """

    name = "prefetch"
    treats = ("storage", "parse", "augment", "collate")
    keeps = "exact"
    stage = 2

    def applies(self, evidence: Evidence) -> Verdict:
        """There must be a DataLoader without workers."""
        data = evidence.input
        if data.kind not in ("loader", "iterable"):
            return Verdict(False, "batches do not come from a DataLoader")
        if data.workers:
            who = counted(data.workers, "worker makes", "workers make")
            return Verdict(False, f"{who} batches ahead already")
        shared = shared_streams(evidence)
        if shared and left_early(evidence):
            return Verdict(
                True, f"epochs are left early, with more drawn by {shared[0]}'s generator"
            )
        if shared:
            return Verdict(
                True, f"what comes between batches draws from {shared[0]}'s generator as they do"
            )
        return Verdict(True, "batches can be made while the step computes, in the same order")

    def settings(self, evidence: Evidence) -> Settings:
        """Batches made ahead."""
        return self.alternatives(evidence)[0]

    def alternatives(self, evidence: Evidence) -> list[Settings]:
        """With either way to make room for the thread, where the step's own use all cores."""
        return [{"batches": DEPTH, **way} for way in ways(evidence, 1)]

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """One thread works ahead, where nothing else does yet."""
        if base.feed.executor in ("threads", "processes"):
            return base
        feed = replace(base.feed, executor="ahead", workers=0, prefetch=int(settings["batches"]))
        return with_room(replace(base, feed=feed), settings)

    def kept(self, evidence: Evidence, settings: Settings | None = None) -> Keeps:
        """Exact on as many threads, if batch and step draw from different generators, and if what makes
        batches depends on no step.
        """
        known = evidence.input.deterministic is not None and the_same_sooner(evidence)
        exact = keeps_threads(settings) and known and not self.redraws(evidence)
        return "exact" if exact else "numerics"

    def redraws(self, evidence: Evidence) -> bool:
        """Where batch and step draw from the same generator, or workers have drawn for another loader."""
        return bool(shared_streams(evidence)) or evidence.input.others_random

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """The training loop draws through a generator that works one batch ahead."""
        changed = drawn_ahead(source, evidence.input.where)
        return source if changed == source else edit_room(changed, settings, evidence)


def drawn_ahead(source: str, where: str | None) -> str:
    """The training's batches are drawn one ahead, in a thread; as it is where that cannot be.

    Another thread makes tensors on torch's own device, whichever the script has set for this one.
    """
    changed = wrap_loop(source, where, "Ahead")
    if changed == source or "set_default_device" in source:
        return source
    changed = insert_after_imports(changed, AHEAD)
    return add_import(changed, "concurrent.futures", "ThreadPoolExecutor")


def is_drawn_ahead(source: str) -> bool:
    """Whether an edit before had it so."""
    return AHEAD.split('"""')[1] in source


def the_same_sooner(evidence: Evidence) -> bool:
    """Whether a batch that is made some steps sooner is the same one."""
    data = evidence.input
    return not (data.fed_back or data.shared or data.own_sampler)


def left_early(evidence: Evidence) -> bool:
    """Whether the training leaves batches of an epoch that would have made a whole step."""
    batches, steps = evidence.input.batches, evidence.run.epoch_steps
    if batches is None or steps is None:
        return False
    return (steps + 1) * evidence.steps.micro_steps <= batches


def shared_streams(evidence: Evidence) -> list[str]:
    """Random generators that the samples draw from, and what comes between two batches as well.

    A validation in mid-epoch is taken to draw from all of them: each pass over a DataLoader takes a
    seed from torch's. What follows an epoch that is left early draws from them after batches that were made
    for nothing.
    """
    drawn = set(evidence.input.random_streams)
    if evidence.input.interrupted or left_early(evidence):
        return sorted(drawn)
    return sorted(drawn & set(evidence.input.step_streams))
