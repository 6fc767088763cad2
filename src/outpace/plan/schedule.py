"""How the learning rate goes down to zero while a budget is used.

A rate that falls to zero over the whole budget is worth more than the same steps at a constant one
(Li et al. 2020, "Budgeted training"; Defazio et al. 2023, arXiv 2310.07831): so the clock that the
schedule follows is that of the deadline, and a slow machine trains for fewer steps, not with a
schedule cut off. Where a budget is only a few epochs, a rate that falls from the first step on learns
less than one that holds and falls at the end.
"""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["linear", "cosine", "one-cycle", "plateau"]

FALL = 0.1
"""share of a budget at whose end the rate falls from its plateau, in a line (Hägele et al. 2024, arXiv
2405.18392: a fifth is nearly as good as a cosine over the whole). Steps of the fall learn less: where a
budget is an epoch or two that is dear, and a few of them are enough for the rate's noise to be gone"""

RISE = 0.25
"""share of a one-cycle in which the rate rises (Smith 2018)"""
START = 1 / 25
"""of the rate, where it begins to rise"""


def rate(schedule: Schedule, used: float) -> float:
    """The learning rate, as a share of its largest, when this share of the budget is used."""
    used = min(1.0, max(0.0, used))
    if schedule == "linear":
        return 1.0 - used
    if schedule == "plateau":
        return min(1.0, (1.0 - used) / FALL)
    if schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * used))
    if used < RISE:
        return START + (1.0 - START) * used / RISE
    return 0.5 * (1.0 + math.cos(math.pi * (used - RISE) / (1.0 - RISE)))
