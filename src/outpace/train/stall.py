"""Whether learning has stalled, told from noise by the slope of the last validations.

The slope is Theil and Sen's with its interval, so that one odd validation decides nothing. The window
grows with the number of validations: what was learnt slowly is judged over longer. In simulations of
200 validations that fall exponentially or by a power law, with noise of up to 6 % of the first value,
"stalled" at ``part=2`` came too early by 0.8 % of what was to be learnt at the most, on average over the
kinds of curve, by 5 % at worst (a slow power law under the strongest noise), and by up to 13 % where that
law is as slow as t^-0.3; where validations get worse from some point on it came after 20 to 30 of them.
Windows of at least 40 instead of 8 would leave 3 % at worst, and end no training that has fewer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from outpace.measure.statistics import median, slope

LONGEST = 100
RISING, SURE = 10, 0.99
"""validations that are to get worse without doubt, and how sure that is to be"""
WORTH = 0.01
"""of what was learnt: less than this in a window is no progress"""


def learnt(costs: Sequence[float]) -> float:
    """What was learnt in all: from the median of the first three down to the best."""
    finite = [cost for cost in costs if math.isfinite(cost)]
    return median(finite[:3]) - min(finite) if finite else 0.0


def stalled(
    costs: Sequence[float], gain: float, *, part: int = 2, fewest: int = 8, unseen: float = 0.03
) -> str | None:
    """Why learning has stalled, or None. ``costs``: validations, smaller is better; ``gain``: what was
    learnt in all.

    It has where the last 10 get worse beyond doubt; or where the last ``1/part`` of them, at least
    ``fewest``, can have brought no more than 1 % of ``gain``, or no more than the share ``unseen`` while
    no progress is to be seen in them. So it has where 100 brought nothing, or the last 100 are no numbers.
    """
    if len(costs) >= LONGEST and not any(map(math.isfinite, costs[-LONGEST:])):
        return f"the last {LONGEST} validations gave no number"
    costs = [cost for cost in costs if math.isfinite(cost)]
    if len(costs) >= RISING and slope(range(RISING), costs[-RISING:], confidence=SURE)[1] > 0:
        return f"the last {RISING} validations get worse"
    window = min(LONGEST, max(fewest, len(costs) // part))
    if len(costs) < window:
        return None
    if gain <= 0:  # nothing was better than the first ones
        return f"{len(costs)} validations brought nothing" if len(costs) >= LONGEST else None
    _, steepest, flattest = slope(range(window), costs[-window:], confidence=0.9)
    most = max(0.0, -steepest * (window - 1))
    if most < WORTH * gain or (flattest >= 0 and most < unseen * gain):
        return f"the last {window} validations brought at most {100 * most / gain:.1f} % of all progress"
    return None
