"""Hosts that have met the loader of a training."""

from __future__ import annotations

from outpace.seams.host import Host
from outpace.seams.loader_record import Record

KEPT: list[Record] = []
"""a host itself knows them weakly"""


def fed_by(record: Record, host: Host | None = None) -> Host:
    """A host to which that loader gave the last batch."""
    host = host or Host()
    KEPT.append(record)
    host.drawn.learnt_from = record
    return host
