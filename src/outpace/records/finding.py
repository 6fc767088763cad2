"""A bottleneck: what the training is bound by, where, and what it would gain without it."""

from __future__ import annotations

from typing import Literal

import msgspec

from outpace.records.gain import Gain

Bound = Literal["io", "compute", "memory", "communication", "outside", "none"]
Keeps = Literal["exact", "numerics", "learning"]
GainOf = Literal["steps", "epochs", "run"]
"""what becomes faster: steady steps; whole epochs, their starts included; or the whole run"""


class Advice(msgspec.Struct, frozen=True):
    """A remedy for a finding with the gain it is predicted to give.

    ``by_hand``: `outpace tune` cannot try it.
    """

    name: str
    keeps: Keeps
    predicted: Gain
    reason: str = ""
    by_hand: bool = False
    gain_of: GainOf = "steps"


class Finding(msgspec.Struct, frozen=True):
    """``gain``: the speed-up, of what ``gain_of`` says, if the cost were gone."""

    bound: Bound
    cause: str | None
    where: str | None
    share: float
    gain: Gain
    reason: str
    remedies: tuple[Advice, ...] = ()
    gain_of: GainOf = "steps"


class Learning(msgspec.Struct, frozen=True):
    """A finding of learning health."""

    rule: str
    severity: Literal["warn", "critical"]
    reason: str
    advice: str
