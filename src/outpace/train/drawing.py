"""The short trainings of lr_finder as a drawing: SVG, which browsers and notebooks show."""

from __future__ import annotations

import math

from outpace.train.rate import Climb, Found

WIDTH, HEIGHT, LEFT, TOP = 520, 240, 70, 34
"""of the panel, and what is left and above of it"""
LINE = '<polyline points="{}" fill="none" stroke="#1f5fbf" stroke-width="2"/>'
DOT = '<circle cx="{:.1f}" cy="{:.1f}" r="3.5" fill="#1f5fbf"/>'
TEXT = '<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>'


def svg(made: Climb, found: Found | None) -> str:
    """The loss after each short training over its rate, and the rate that was found for the long one
    (dashed) with its interval (shaded). What is higher than before any training is cut off.
    """
    rates = [point.rate for point in made.points] + ([found.low, found.high] if found else [])
    first, last = math.log(min(rates) / 1.5), math.log(max(rates) * 1.5)
    losses = [point.loss for point in made.points]
    numbers = [each for each in (made.before, *losses) if math.isfinite(each)] or [0.0]
    low, high = min(numbers), min(made.before, max(losses))
    high = high if math.isfinite(high) else max(numbers)

    def across(rate: float) -> float:
        return LEFT + WIDTH * (math.log(rate) - first) / (last - first)

    def down(loss: float) -> float:
        return TOP + HEIGHT * (high - min(high, loss)) / ((high - low) or 1.0)

    size = f'width="{LEFT + WIDTH + 20}" height="{TOP + HEIGHT + 40}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        TEXT.format(LEFT, TOP - 20, "start", f"loss after {made.steps} steps over the rate"),
    ]
    if found is not None:
        left, right, at = across(found.low), across(found.high), across(found.rate)
        area = f'x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{HEIGHT}"'
        parts.append(f'<rect {area} fill="#d95f02" opacity="0.15"/>')
        parts.append(
            f'<path d="M{at:.1f},{TOP} v{HEIGHT}" stroke="#d95f02" stroke-dasharray="4 3"/>'
        )
        parts.append(TEXT.format(at, TOP - 4, "middle", f"{found.rate:.2g}"))
    points = [(across(point.rate), down(point.loss)) for point in made.points]
    parts.append(LINE.format(" ".join(f"{x:.1f},{y:.1f}" for x, y in points)))
    parts += [DOT.format(*point) for point in points]
    decades = range(math.ceil(first / math.log(10)), math.floor(last / math.log(10)) + 1)
    parts += [
        TEXT.format(across(10.0**each), TOP + HEIGHT + 16, "middle", f"{10.0**each:g}")
        for each in decades
    ]
    parts += [TEXT.format(LEFT - 6, down(each) + 4, "end", f"{each:.2g}") for each in (low, high)]
    frame = f'x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}"'
    return "\n".join([*parts, f'<rect {frame} fill="none" stroke="#999"/>', "</svg>", ""])
