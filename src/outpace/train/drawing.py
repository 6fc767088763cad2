"""The sweeps of lr_finder as a drawing: SVG, which browsers and notebooks show."""

from __future__ import annotations

import math
from collections.abc import Sequence

from outpace.train.sweep import BLOWN, Found, Sweeps, middle

WIDTH, HEIGHT, LEFT, TOP = 520, 240, 70, 34
"""of the panel, and what is left and above of it"""
LINE = '<polyline points="{}" fill="none" stroke="{}" stroke-width="{}"/>'
TEXT = '<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>'


def svg(made: Sweeps, found: Found | None) -> str:
    """The change of the loss over the rate: each sweep, their middle (thick), the rate that was found
    (dashed) with its interval (shaded). What rises higher than it had fallen is cut off.
    """
    low = min((c for change in made.changes for c in change if math.isfinite(c)), default=0.0)
    low = min(low, 0.0)
    high = max(-low, BLOWN * made.begin)
    first, last = math.log(made.rates[0]), math.log(made.rates[-1])

    def across(rate: float) -> float:
        return LEFT + WIDTH * (math.log(rate) - first) / (last - first)

    def down(change: float) -> float:
        return TOP + HEIGHT * (high - min(high, change)) / ((high - low) or 1.0)

    def line(changes: Sequence[float], colour: str, width: float) -> str:
        end = next((i for i, change in enumerate(changes) if not change < high), len(changes))
        pairs = zip(made.rates, changes[: end + 1], strict=False)
        points = " ".join(f"{across(rate):.1f},{down(change):.1f}" for rate, change in pairs)
        return LINE.format(points, colour, width)

    size = f'width="{LEFT + WIDTH + 20}" height="{TOP + HEIGHT + 40}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        TEXT.format(LEFT, TOP - 14, "start", "change of the loss over the learning rate"),
    ]
    if found is not None:
        left, right, at = across(found.low), across(found.high), across(found.rate)
        area = f'x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{HEIGHT}"'
        parts.append(f'<rect {area} fill="#d95f02" opacity="0.15"/>')
        parts.append(
            f'<path d="M{at:.1f},{TOP} v{HEIGHT}" stroke="#d95f02" stroke-dasharray="4 3"/>'
        )
        parts.append(TEXT.format(at, TOP - 2, "middle", f"{found.rate:.2g}"))
    parts += [line(change, "#999", 1.0) for change in made.changes]
    parts.append(line(middle(made, made.changes), "#1f5fbf", 2.2))
    decades = range(
        math.ceil(first / math.log(10) - 1e-9), math.floor(last / math.log(10) + 1e-9) + 1
    )
    parts += [
        TEXT.format(across(10.0**each), TOP + HEIGHT + 16, "middle", f"{10.0**each:g}")
        for each in decades
    ]
    parts += [
        TEXT.format(LEFT - 6, down(each) + 4, "end", f"{each:.2g}") for each in (low, 0.0, high)
    ]
    frame = f'x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}"'
    return "\n".join([*parts, f'<rect {frame} fill="none" stroke="#999"/>', "</svg>", ""])
