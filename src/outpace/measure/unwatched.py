"""Why no training was seen where there may have been one: in another thread, or in another process."""

from __future__ import annotations

import resource

from outpace.seams.host import Host

LEAST_S = 1.0
"""CPU seconds of the target's processes that may have been a training"""


def unwatched(host: Host) -> list[str]:
    """What speaks for a training that was not watched."""
    found = []
    if count := host.backwards_elsewhere:
        passes = "a backward pass" if count == 1 else f"{count} backward passes"
        found.append(
            f"it trains in a thread of its own without an optimizer of torch, which is not watched: "
            f"{passes} came there"
        )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    if seconds >= LEAST_S:
        found.append(
            f"processes that it started took {seconds:.0f} s of CPU time; a training in one of them is not "
            "watched, unless a launcher such as torchrun starts it"
        )
    return found
