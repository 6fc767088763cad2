"""A script's text with several remedies in it, one edit after the other.

Each edit moves lines, so the places that were measured are followed from the script as it was to
the text as it is by now.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.catalog import remedy
from outpace.remedies.edits import ELSEWHERE, moved
from outpace.remedies.room import edit_room

FEEDS = ("prefetch", "fetch_threads", "loader_workers")
"""of which the last one says who makes the batches, and those before it have only made room"""
THREADS = "compute_threads"
ORDER = {"cache_decoded": -1, "pin_memory": 1}
"""A cache of images takes the calls that another decoder would have: that decoder goes into the cache. Who
pins batches is who makes them.
"""


class Patch(NamedTuple):
    """A script's text with remedies in it, and those that it is without."""

    text: str
    without: tuple[str, ...]


def patched(
    source: str, evidence: Evidence, remedies: Iterable[tuple[str, Settings]], name: str
) -> str:
    """``source``, the text of the file ``name``, with the edits of all remedies."""
    return patch_of(source, evidence, remedies, name).text


def patch_of(
    source: str, evidence: Evidence, remedies: Iterable[tuple[str, Settings]], name: str
) -> Patch:
    """The same, and which remedies cannot be written there."""
    text, without = source, list[str]()
    chosen = last_number_of_threads(remedies)
    facts = placed(evidence, source, source, name)
    feeds = [
        each
        for each, settings in chosen
        if each in FEEDS and remedy(each).edit(source, facts, settings) != source
    ]
    for each, settings in sorted(chosen, key=lambda pair: ORDER.get(pair[0], 0)):
        there = placed(evidence, source, text, name)
        if each in FEEDS and each not in feeds[-1:]:
            text = edit_room(text, settings, there) if feeds else text
            without += [each] * (not feeds)
        else:
            before, text = text, remedy(each).edit(text, there, settings)
            without += [each] * (before == text)
    return Patch(text, tuple(without))


def last_number_of_threads(remedies: Iterable[tuple[str, Settings]]) -> list[tuple[str, Settings]]:
    """Remedies without the numbers of the step's threads that a later one has set anew."""
    chosen = list(remedies)
    sets = [
        number
        for number, (each, settings) in enumerate(chosen)
        if each == "threads" or THREADS in settings
    ]
    found: list[tuple[str, Settings]] = []
    for number, (each, settings) in enumerate(chosen):
        if number not in sets[:-1]:
            found.append((each, settings))
        elif each != "threads":
            found.append((each, {k: v for k, v in settings.items() if k != THREADS}))
    return found


def placed(evidence: Evidence, before: str, after: str, name: str) -> Evidence:
    """Evidence whose places are lines of ``after``; those in other files are `ELSEWHERE`."""

    def at(where: str | None) -> str | None:
        file = (where or "").rpartition(":")[0]
        if where is not None and os.path.basename(file) != os.path.basename(name):
            return f"{name}:{ELSEWHERE}"
        return moved(where, before, after)

    replace = msgspec.structs.replace
    data, compute = evidence.input, evidence.compute
    return replace(
        evidence,
        input=replace(data, where=at(data.where)),
        compute=replace(
            compute,
            where=at(compute.where),
            eval_where=at(compute.eval_where),
            threads_where=at(compute.threads_where),
        ),
        syncs=tuple(replace(s, where=at(s.where)) for s in evidence.syncs),
        transfers=tuple(replace(s, where=at(s.where)) for s in evidence.transfers),
        ledger=tuple(replace(r, where=at(r.where)) for r in evidence.ledger),
    )
