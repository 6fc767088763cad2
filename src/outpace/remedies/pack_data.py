"""pack_data: samples in one file, read in large pieces, and parsed before."""

from __future__ import annotations

from typing import final

from outpace.records.evidence import Evidence
from outpace.records.gain import NO_GAIN, Gain
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.model import gain_without
from outpace.seams.setup import AS_IS, Setup

WORTH = 0.3
"""share of making a batch that goes into reading and parsing"""
SAVED = 0.5
"""of the waiting for reading and parsing, at the least"""


@final
class PackData(Remedy):
    """Store the data once with ``outpace pack``: one file, an index, rows that are parsed already.

    Helps where batches wait for storage: many small files, a slow disk, an address; and where samples are
    parsed from text each time. A packed file is read in large pieces, in any order, and shuffled whole.
    Images stay as they are encoded: their decoding is not saved. Keeps every bit.

    Advice, as it takes a copy of the data and another line in the script: ``outpace pack SOURCE DEST``,
    then ``outpace.Loader(DEST, batch_size)``, or a map-style data set over it.
    """

    name = "pack_data"
    treats = ("storage", "parse")
    keeps = "exact"
    advice_only = True

    def applies(self, evidence: Evidence) -> Verdict:
        """Reading and parsing must take a good part of making a batch, which steps wait for."""
        data = evidence.input
        if data.kind == "none" or not data.fetch_s or not data.wait_s:
            return Verdict(False, "no step was seen to wait for its batch")
        share = _spared(evidence)
        return Verdict(
            share >= WORTH, f"{100 * share:.0f} % of making a batch is reading and parsing"
        )

    def predict(
        self, evidence: Evidence, settings: Settings | None = None, accepted: Setup = AS_IS
    ) -> Gain:
        """Of the waiting what reading and parsing are of a fetch, or half of that."""
        data, step = evidence.input, evidence.steps.mean_s
        if not data.fetch_s or not step or accepted.free_input:
            return NO_GAIN
        saved = min(data.wait_s, step) / step * _spared(evidence)
        return gain_without(saved, SAVED * saved, saved)


def _spared(evidence: Evidence) -> float:
    """Share of making a batch in which it is read, or waited for, and parsed."""
    data = evidence.input
    return min(1.0, (max(data.storage_s, data.read_s) + data.parse_s) / data.fetch_s)
