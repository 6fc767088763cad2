"""allocator: freed memory is kept for the next block, instead of being given back to the system."""

from __future__ import annotations

import functools
import os
import platform
from ctypes.util import find_library
from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.gain import Gain
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.model import gain_without, step_time
from outpace.seams.setup import AS_IS, Setup

LIBRARIES = ("jemalloc", "tcmalloc", "tcmalloc_minimal")
OLDER = platform.libc_ver() < ("glibc", "2.35")
KEEP = {
    # More than half of one of its heaps, 64 MiB, an older one refuses.
    "MALLOC_MMAP_THRESHOLD_": str(2**25 if OLDER else 2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "MALLOC_TOP_PAD_": str(2**26),
}
"""of glibc (mallopt(3)): take memory in 64 MiB, and give none back below 4 GiB"""
SAVED = 0.9
"""share of page faults that are of memory that had been given back"""


@final
class Allocator(Remedy):
    """Keep freed memory for the next block, instead of giving it back to the system.

    Torch and decoders take and return large blocks all the time; the C library gives them back to
    the system, which has to find pages and fill them with zeros anew. jemalloc and tcmalloc keep
    them, and so does the C library of Linux where it is told to.

    Helps training on a CPU with large activations, and loading of large images: on photographs of
    half a megapixel an epoch took 0.75 of its time while they were first kept. Costs some memory,
    so that less than 1.1x is not taken. It takes a new process. Keeps every bit.
    """

    name = "allocator"
    treats = ("arithmetic", "dispatch", "bandwidth", "parse", "augment")
    keeps = "exact"
    stage = 3
    least = 1.1

    def applies(self, evidence: Evidence) -> Verdict:
        """Where steps take fresh memory, and there is something that would keep it."""
        library = installed()
        if not library and platform.libc_ver()[0] != "glibc":
            return Verdict(False, "neither jemalloc nor tcmalloc is installed")
        faults = evidence.compute.page_faults
        if not faults:
            return Verdict(False, "steps take no fresh memory")
        return Verdict(True, f"a step takes {faults:.0f} pages of fresh memory")

    def predict(
        self, evidence: Evidence, settings: Settings | None = None, accepted: Setup = AS_IS
    ) -> Gain:
        """Most of the time in which pages are filled is saved."""
        step = step_time(evidence, accepted).seconds
        share = SAVED * evidence.paging_s / step if step > 0 else 0.0
        return gain_without(share, 0.3 * share, 1.3 * share)

    def settings(self, evidence: Evidence) -> Settings:
        """A library that is installed, else the C library's own settings."""
        return {"library": installed()} if installed() else {"malloc": "keep"}

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """``LD_PRELOAD``, before what the user preloads already, or variables of the C library."""
        if settings.get("malloc") or "library" not in settings:
            variables = {**dict(base.environment), **KEEP}
            return replace(base, environment=tuple(sorted(variables.items())))
        others = [p for p in os.environ.get("LD_PRELOAD", "").split(":") if p]
        names = dict.fromkeys([str(settings["library"]), *others])
        variables = {**dict(base.environment), "LD_PRELOAD": ":".join(filter(None, names))}
        return replace(base, environment=tuple(sorted(variables.items())))


@functools.cache
def installed() -> str:
    """The first of the libraries that the system's loader finds; empty where there is none."""
    return next(filter(None, map(find_library, LIBRARIES)), None) or ""
