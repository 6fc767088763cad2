"""allocator: another malloc."""

from __future__ import annotations

import functools
import os
from ctypes.util import find_library
from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.gain import Gain
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.seams.setup import AS_IS, Setup

LIBRARIES = ("jemalloc", "tcmalloc", "tcmalloc_minimal")


@final
class Allocator(Remedy):
    """Load jemalloc or tcmalloc in the place of the C library's malloc.

    Torch takes and returns large blocks for every operator on a CPU; the C library gives them back
    to the system, which must fill them with zeros anew. These allocators keep them.

    Helps training on a CPU with large activations. Costs some memory. One of the two libraries must
    be installed (``apt install libjemalloc2``), and it takes a new process. Keeps every bit.
    """

    name = "allocator"
    treats = ("arithmetic", "dispatch", "bandwidth")
    keeps = "exact"
    stage = 3

    def applies(self, evidence: Evidence) -> Verdict:
        """On a CPU, with a library that is there."""
        if evidence.compute.device != "cpu":
            return Verdict(False, "the model is not on the CPU")
        library = self.settings(evidence)["library"]
        if not library:
            return Verdict(False, "neither jemalloc nor tcmalloc is installed")
        return Verdict(True, f"{library} is installed")

    def predict(
        self, evidence: Evidence, settings: Settings | None = None, accepted: Setup = AS_IS
    ) -> Gain:
        """A guess until it is measured: a few percent of the compute."""
        measured = evidence.arm(self.name)
        if measured is not None:
            return Gain(measured.gain.speedup, measured.gain.low, measured.gain.high)
        return Gain(1.03, 0.95, 1.2)

    def settings(self, evidence: Evidence) -> Settings:
        """The first library that is found."""
        return {"library": installed()}

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """``LD_PRELOAD``, before what the user preloads already."""
        others = [p for p in os.environ.get("LD_PRELOAD", "").split(":") if p]
        names = dict.fromkeys([str(settings["library"]), *others])
        variables = {**dict(base.environment), "LD_PRELOAD": ":".join(filter(None, names))}
        return replace(base, environment=tuple(sorted(variables.items())))


@functools.cache
def installed() -> str:
    """The first of the libraries that the system's loader finds; empty where there is none."""
    return next(filter(None, map(find_library, LIBRARIES)), None) or ""
