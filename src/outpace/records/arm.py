"""What came of comparing one way to run a step with another."""

from __future__ import annotations

import msgspec

from outpace.records.gain import Gain

ONE_THREAD = "one_thread"
"""the arm that no other process can hold up by taking the core of one thread of several"""
COMMUNICATION_FREE = "communication_free"
"""the arm in which ranks exchange nothing"""
FED = " with its input"
"""at the end of an arm's name: batches are made meanwhile as ever, where else they cost nothing"""
TOO_FEW = "too few rounds"
"""why an arm has no gain that was let run for too short a time, and did not fail"""


class Arm(msgspec.Struct, frozen=True):
    """One way to run a step, compared with the script as it is, round by round."""

    name: str
    rounds: int
    seconds: float
    """median wall seconds a step"""
    cpu_seconds: float
    gain: Gain
    """on the wall clock"""
    cpu_gain: Gain
    failed: str | None = None
    base: str = "as_is"
    """the arm it was compared with"""
