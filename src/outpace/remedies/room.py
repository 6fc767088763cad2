"""Room on the cores for what makes batches beside a step whose own threads use them all.

Two ways: the step's threads sleep while they wait, which keeps every bit, or there are fewer of
them, which sums numbers in another order. Left as they are they spin, and both sides crawl.
"""

from __future__ import annotations

from dataclasses import replace

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.edits import (
    insert_after_imports,
    insert_before_imports,
    set_number_of_threads,
)
from outpace.remedies.model import crowded
from outpace.seams.setup import Setup

LINES = 'import os\n\nos.environ.setdefault("OMP_WAIT_POLICY", "passive")'


def ways(evidence: Evidence, makers: int) -> list[Settings]:
    """Settings that make room for so many makers of batches; empty ones where there is room."""
    if not crowded(evidence, makers):
        return [{}]
    fewer = max(1, min(evidence.compute.threads - 1, evidence.machine.cores - makers))
    sleeping: list[Settings] = [{"passive": True}]
    if evidence.slowed_by_others(fewer):
        return sleeping
    return [*sleeping, {"compute_threads": fewer}]


def with_room(setup: Setup, settings: Settings) -> Setup:
    """The Setup with the threads that ``settings`` name."""
    if "compute_threads" in settings:
        setup = replace(setup, threads=int(settings["compute_threads"]))
    return replace(setup, passive=setup.passive or bool(settings.get("passive")))


def keeps_threads(settings: Settings | None) -> bool:
    """Whether sums are taken in the same order."""
    return "compute_threads" not in (settings or {})


def edit_room(source: str, settings: Settings, evidence: Evidence) -> str:
    """The script with the same threads; the variable is set before torch reads it.

    Where the script chose its number of threads it chooses another: calls elsewhere are of other processes.
    """
    if "compute_threads" in settings:
        threads, where = int(settings["compute_threads"]), evidence.compute.threads_where
        if where is None:
            source = insert_after_imports(source, f"torch.set_num_threads({threads})")
        else:
            source = set_number_of_threads(source, threads, where)
    if settings.get("passive") and "OMP_WAIT_POLICY" not in source:
        source = insert_before_imports(source, LINES)
    return source
