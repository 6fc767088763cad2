"""A script's text with several remedies in it, one edit after the other.

Each edit moves lines, so the places that were measured are followed from the script as it was to
the text as it is by now.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.catalog import remedy
from outpace.remedies.edits import ELSEWHERE, moved


def patched(
    source: str, evidence: Evidence, remedies: Iterable[tuple[str, Settings]], name: str
) -> str:
    """``source``, the text of the file ``name``, with the edits of all remedies."""
    text = source
    # A cache of images takes the calls that another decoder would have: that decoder goes into the cache.
    for each, settings in sorted(remedies, key=lambda pair: pair[0] != "cache_decoded"):
        text = remedy(each).edit(text, placed(evidence, source, text, name), settings)
    return text


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
