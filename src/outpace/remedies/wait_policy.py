"""wait_policy: idle threads sleep instead of spinning."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.room import edit_room
from outpace.seams.setup import Setup


@final
class WaitPolicy(Remedy):
    """Let OpenMP threads that wait for work go to sleep at once, as ``OMP_WAIT_POLICY=passive``.

    By default they spin for a while, and take the cores from whatever else could run there: the
    loader's workers, a thread that makes batches, another program. Measured on two cores beside
    one busy thread, a step took 0.47 of its time without the spinning.

    Helps where threads and makers of batches are more than the cores, or others use the machine.
    Alone on the machine it costs 3 to 9 %, and where operations are tiny up to three times the step,
    since waking a thread takes longer: so it is measured first. Works with GNU's OpenMP, which torch
    brings along on Linux. Keeps every bit.
    """

    name = "wait_policy"
    treats = ("threads", "augment", "parse", "ipc")
    keeps = "exact"
    stage = 2
    probed = True
    crowds = True

    def applies(self, evidence: Evidence) -> Verdict:
        """Several threads on a CPU."""
        compute, cores = evidence.compute, evidence.machine.cores
        if compute.device != "cpu":
            return Verdict(False, "the model is not on the CPU")
        if compute.threads < 2:
            return Verdict(False, "one thread waits for no other")
        return Verdict(True, f"{compute.threads} threads wait for each other on {cores} cores")

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """Threads sleep."""
        return replace(base, passive=True)

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """The variable is set before torch is imported, which reads it."""
        return edit_room(source, {"passive": True}, evidence)
