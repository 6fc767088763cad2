"""threads: how many threads share an operation."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.seams.setup import AS_IS, Setup


@final
class Threads(Remedy):
    """Run operations with another number of threads.

    Small operations are quicker on one thread, large ones on all cores; too many threads for the
    cores wait for each other. Sums may be taken in another order, so quality is proven.
    """

    name = "threads"
    treats = ("threads", "arithmetic", "dispatch")
    keeps = "numerics"
    probed = True

    def counts(self, evidence: Evidence) -> list[int]:
        """Numbers to try: one, half and all of the cores, but for the present."""
        cores = max(1, evidence.machine.cores)
        return sorted({1, max(1, cores // 2), cores} - {evidence.compute.threads})

    def applies(self, evidence: Evidence) -> Verdict:
        """On a CPU with another number to try."""
        if evidence.compute.device != "cpu":
            return Verdict(False, "the model is not on the CPU")
        counts = self.counts(evidence)
        if not counts:
            return Verdict(False, f"{evidence.compute.threads} thread on one core")
        return Verdict(True, f"{evidence.compute.threads} threads now, {counts} to try")

    def alternatives(self, evidence: Evidence) -> list[Settings]:
        """Numbers by the gain that their arms had."""
        options: list[Settings] = [{"threads": n} for n in self.counts(evidence)]
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
