"""wait_policy: idle threads sleep instead of spinning."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.gain import Gain
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import insert_before_imports
from outpace.seams.setup import AS_IS, Feed, Setup

VARIABLES = (("GOMP_SPINCOUNT", "0"), ("KMP_BLOCKTIME", "0"), ("OMP_WAIT_POLICY", "passive"))
SPINNING = 1.5
"""gain of fewer threads from which idle threads are suspected to spin in each other's way"""
LINES = 'import os\n\nos.environ.setdefault("OMP_WAIT_POLICY", "passive")'


@final
class WaitPolicy(Remedy):
    """Let OpenMP threads that wait for work go to sleep at once (``OMP_WAIT_POLICY=passive``).

    By default they spin for a while, and take the cores from whatever else could run there: the
    loader's workers, a thread that makes batches, another program. Measured on two cores beside two
    workers, a step took 0.66 of its time without the spinning.

    Helps where threads and makers of batches are more than the cores. Alone on the machine it costs
    3 to 9 %, since waking a thread takes longer. The variables are read when torch is loaded, so it
    takes a new process. Keeps every bit.
    """

    name = "wait_policy"
    treats = ("threads", "augment", "parse", "ipc")
    keeps = "exact"
    stage = 3

    def applies(self, evidence: Evidence) -> Verdict:
        """Several threads on a CPU, beside something that may make batches."""
        compute, cores = evidence.compute, evidence.machine.cores
        if compute.device != "cpu":
            return Verdict(False, "the model is not on the CPU")
        if compute.threads < 2:
            return Verdict(False, "one thread waits for no other")
        if contended(evidence):
            return Verdict(True, f"{compute.threads} threads take longer than fewer: they may spin")
        if evidence.input.kind not in ("loader", "iterable"):
            return Verdict(False, f"nothing runs beside {compute.threads} threads on {cores} cores")
        beside = max(1, evidence.input.workers)
        reason = (
            f"{compute.threads} threads and {beside} more that make batches share {cores} cores"
        )
        return Verdict(compute.threads + beside > cores, reason)

    def predict(
        self, evidence: Evidence, settings: Settings | None = None, accepted: Setup = AS_IS
    ) -> Gain:
        """By what was seen on machines of two cores: a wide interval."""
        measured = evidence.arm(self.name)
        if measured is not None:
            return Gain(measured.gain.speedup, measured.gain.low, measured.gain.high)
        threads = accepted.threads or evidence.compute.threads
        if threads > 1 and contended(evidence):
            return Gain(1.2, 0.8, 2.5)
        makers = beside_step(accepted.feed, evidence.input.workers)
        if not makers or threads + makers <= evidence.machine.cores:
            return Gain(0.95, 0.9, 1.0)
        return Gain(1.2, 0.9, 2.0)

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """Variables for GNU's and LLVM's or Intel's OpenMP."""
        variables = {**dict(base.environment), **dict(VARIABLES)}
        return replace(base, environment=tuple(sorted(variables.items())))

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """The variable is set before torch is imported."""
        return insert_before_imports(source, LINES)


def contended(evidence: Evidence) -> bool:
    """Whether fewer threads were much quicker, as where something else holds the cores."""
    fewer = [evidence.arm(f"threads_{n}") for n in range(1, evidence.compute.threads)]
    return any(arm is not None and arm.gain.low > SPINNING for arm in fewer)


def beside_step(feed: Feed, own_workers: int) -> int:
    """Processes and threads that make batches while the step computes."""
    if feed.executor == "own" and feed == AS_IS.feed:
        return own_workers
    # Threads that fetch mostly wait: together they are taken for one that computes.
    return {"ahead": 1, "threads": 1, "processes": feed.workers}.get(feed.executor, 0)
