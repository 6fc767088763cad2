"""threads: how many threads share an operation."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.room import edit_room
from outpace.seams.setup import AS_IS, Setup

MOST_ARMS = 4


@final
class Threads(Remedy):
    """Run operations with another number of threads.

    Small operations are quicker on one thread, where none waits for another; large ones on all
    cores. Which holds depends on the batch size. Beside workers or a thread that works ahead, a
    core less for the operations may be quicker too.

    Sums may be taken in another order, so quality is proven. Only for a model on the CPU.
    """

    name = "threads"
    treats = ("threads", "arithmetic", "dispatch")
    keeps = "numerics"
    probed = True
    crowds = True

    def counts(self, evidence: Evidence) -> list[int]:
        """Numbers to try: powers of two up to the cores, one core less, but for the present.

        None that would pay for other processes' sake alone: when these are gone it does harm.
        """
        cores = max(1, evidence.machine.cores)
        powers = {2**n for n in range(cores.bit_length()) if 2**n <= cores}
        others = (powers | {cores, max(1, cores - 1)}) - {evidence.compute.threads}
        counts = sorted(n for n in others if not evidence.slowed_by_others(n))
        return [counts[0], *counts[1:][-(MOST_ARMS - 1) :]] if counts else []

    def applies(self, evidence: Evidence) -> Verdict:
        """On a CPU with another number to try."""
        if evidence.compute.device != "cpu":
            return Verdict(False, "the model is not on the CPU")
        counts, now = self.counts(evidence), evidence.compute.threads
        cores, busy = evidence.machine.cores, evidence.run.others_cores
        if not counts and cores > 1:
            return Verdict(
                False,
                f"other processes kept {busy:.1f} of {cores} cores busy: whether fewer than {now} "
                "threads pay is to be tried without them",
            )
        if not counts:
            return Verdict(False, f"{now} thread on one core: there is no other number to try")
        tried = " or ".join(str(n) for n in counts)
        return Verdict(
            True,
            f"operations run on {now} of {cores} cores; {tried} may be better",
        )

    def alternatives(self, evidence: Evidence) -> list[Settings]:
        """Numbers by the gain that their arms had."""
        options: list[Settings] = [{"threads": n} for n in self.counts(evidence)]
        options = options or [{"threads": evidence.compute.threads}]
        return sorted(options, key=lambda s: -self.predict(evidence, s).speedup)

    def settings(self, evidence: Evidence) -> Settings:
        """The best number."""
        return self.alternatives(evidence)[0]

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """``torch.set_num_threads``."""
        return replace(base, threads=int(settings["threads"]))

    def arm(self, evidence: Evidence) -> dict[str, Setup]:
        """One arm a number."""
        base = replace(AS_IS, free_input=evidence.input.kind in ("loader", "iterable"))
        return {f"threads_{n}": replace(base, threads=n) for n in self.counts(evidence)}

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """``torch.set_num_threads`` after the imports."""
        return edit_room(source, {"compute_threads": settings["threads"]}, evidence)
