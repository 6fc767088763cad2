"""Remedies that only a new process can take: environment variables."""

from __future__ import annotations

from collections.abc import Iterable

from outpace.records.trial import Settings
from outpace.remedies.catalog import setup_of


def environment_of(remedies: Iterable[tuple[str, Settings]]) -> dict[str, str]:
    """The variables that a recipe sets."""
    return dict(setup_of(remedies).environment)
