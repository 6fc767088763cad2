"""What a step's phases take on a GPU, out of what the host saw of them.

Operators are only launched: the host's clock tells when, and shows the device's computing wherever the
host waits next. How much of a wait costs anything is known by experiment: the step without it. What the
step keeps is the device's computing, and what the host did beside that costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outpace.records.arm import Arm
from outpace.seams.phases import WORK

FREED = {"transfer": "transfer_free", "sync": "sync_free", "input": "input_free"}
"""phases in which a host may wait, and the arms that do without them"""
WAITS = ("transfer", "sync")


def on_device(phases: Mapping[str, float], arms: Sequence[Arm]) -> dict[str, float]:
    """Seconds of a step by phase; the same seconds in all.

    Without arms the phases are as the host saw them.
    """
    found = dict(phases)
    whole, work = sum(found.values()), sum(found.get(name, 0.0) for name in WORK)
    gains = {arm.name: arm.gain for arm in arms if arm.failed is None}
    if not work or not all(FREED[name] in gains for name in WAITS):
        return found
    for name, arm in FREED.items():
        if arm in gains and name in found:
            gain = gains[arm]
            lost = whole * (1 - 1 / gain.speedup) if gain.is_gain else 0.0
            found[name] = min(found[name], lost)
    # As long as the host waits for the device, what it does beside that holds up nobody.
    waited = sum(phases.get(name, 0.0) - found.get(name, 0.0) for name in WAITS)
    found["elsewhere"] = max(0.0, found.get("elsewhere", 0.0) - waited)
    computing = work + whole - sum(found.values())
    return found | {name: found.get(name, 0.0) * computing / work for name in WORK}
