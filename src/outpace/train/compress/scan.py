"""A sensitivity scan: how the metric falls with what is removed of each layer alone, and the shares
that may be removed of all together.

A layer's share is the largest below which its own fall stays within a threshold. The threshold is
bisected until that of all layers together stays within what is allowed; then each is raised further as
long as it does. What is returned was measured together. Limit: the search takes it that a larger
threshold falls further.
Source: Han et al. 2015, arXiv 1506.02626, section 4 (sensitivity of each layer, its own threshold).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from outpace.train.compress.result import Curve

Fall = Callable[[Mapping[str, float]], float]
"""share to remove of each layer -> by how much the metric falls"""


def curves(
    names: Iterable[str], levels: Sequence[float], fall: Fall, allowed: float
) -> dict[str, Curve]:
    """The fall at rising ``levels`` of each layer alone, up to the first beyond what is allowed."""
    found: dict[str, Curve] = {}
    for name in names:
        points: list[tuple[float, float]] = []
        for level in levels:
            points.append((level, fall({name: level})))
            if points[-1][1] > allowed:
                break
        found[name] = tuple(points)
    return found


def shares(found: Mapping[str, Curve], fall: Fall, allowed: float) -> dict[str, float]:
    """The shares of the largest threshold at which all together stay within ``allowed``; may be empty."""
    falls = {max(0.0, lost) for curve in found.values() for _, lost in curve}
    thresholds = sorted(lost for lost in falls if lost <= allowed)
    best: dict[str, float] = {}
    low, high = 0, len(thresholds)
    while low < high:
        middle = (low + high) // 2
        tried = within(found, thresholds[middle])
        if fall(tried) <= allowed:
            best, low = tried, middle + 1
        else:
            high = middle
    return further(best, found, fall, allowed)


def further(
    best: dict[str, float], found: Mapping[str, Curve], fall: Fall, allowed: float
) -> dict[str, float]:
    """One layer after the other raised as far as all together allow: a threshold is a coarse measure."""
    for name, curve in found.items():
        for level, lost in curve:
            if level > best.get(name, 0.0) and lost <= allowed:
                tried = {**best, name: level}
                if fall(tried) > allowed:
                    break
                best = tried
    return best


def within(found: Mapping[str, Curve], threshold: float) -> dict[str, float]:
    """Each layer's largest share up to which its fall stays within a threshold."""
    best: dict[str, float] = {}
    for name, curve in found.items():
        for level, lost in curve:
            if lost > threshold:
                break
            best[name] = level
    return best
