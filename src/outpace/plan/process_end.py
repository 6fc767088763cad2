"""How long the process will take to end, once its script has.

Python looks through all objects for garbage three times then, and frees them: with what torch's import makes
that is most of half a second. One such look, taken while the training goes on, tells how many there are
and how slow the machine is.
"""

from __future__ import annotations

import gc
import time

LOOKS = 6.0
"""as long as so many: 4.7 to 7.9 were seen, alone, beside other programs and stopped half of the time"""
ELSE_S = 0.04
"""what we have to write, and our own process's end"""


def seconds_to_end() -> float:
    """As long as it would take now."""
    begun = time.perf_counter()
    gc.collect()
    return LOOKS * (time.perf_counter() - begun) + ELSE_S
