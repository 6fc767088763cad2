"""A recipe: accepted remedies with settings, gains, proof and the machine they hold for.

It is written as TOML that a person can read and edit::

    schema = 1
    target = "train.py --epochs 5"
    speedup = {speedup = 2.9, low = 2.6, high = 3.2, how = "measured"}

    [[remedies]]
    name = "cache_decoded"
    keeps = "exact"
    ...
"""

from __future__ import annotations

import msgspec

from outpace.records.finding import Keeps
from outpace.records.gain import Gain
from outpace.records.trial import Settings


class Applied(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A remedy of a recipe."""

    name: str
    keeps: Keeps
    settings: Settings = {}
    gain: Gain | None = None
    reason: str = ""


class Proven(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The proof in one line a key."""

    proven: bool
    seeds: int
    steps: int
    margin: float
    confidence: float
    high: float | None = None
    measure: str = "loss"


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `outpace run --recipe` applies."""

    schema: int
    target: str
    outpace: str
    python: str
    torch: str
    machine: str
    fingerprint: str
    speedup: Gain | None = None
    proof: Proven | None = None
    environment: dict[str, str] = {}
    """variables that only a new process can take"""
    remedies: tuple[Applied, ...] = ()
