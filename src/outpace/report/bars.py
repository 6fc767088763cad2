"""Bars and intervals drawn with block characters, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.text import Text

from outpace.records.gain import Gain
from outpace.report.axis import Axis

CURVE = 60
"""columns"""
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """A bar for a share of one, exact to an eighth of a character."""
    eighths = 0 if math.isnan(share) else round(8 * width * min(1.0, max(0.0, share)))
    full, part = divmod(eighths, 8)
    return ("█" * full + _EIGHTHS[part].strip()).ljust(width)


def style(gain: Gain) -> str:
    """Green where the interval excludes "no gain", red where it excludes anything but harm."""
    return "green" if gain.is_gain else "red" if gain.is_harm else "default"


def track(axis: Axis, gain: Gain | None, width: int, predicted: Gain | None = None) -> Text:
    """One line of a forest plot: ``│`` is "no gain", ``●`` the gain, ``─`` its interval.

    A bar leads from "no gain" to the lower end of the interval; ``◇`` is what was predicted.
    """
    cells = [" "] * width

    def cell(value: float) -> int | None:
        at = axis.at(value)
        return None if at is None else min(width - 1, int(at / 100 * width))

    one = cell(1.0) or 0
    if gain is not None:
        at, low, high = cell(gain.speedup), cell(gain.low), cell(gain.high)
        for index in _between(one, low if (gain.low > 1) else high if gain.high < 1 else None):
            cells[index] = "━"
        for index in _between(low, high):
            cells[index] = "─"
        if at is not None:
            cells[at] = "●"
    if cells[one] == " ":
        cells[one] = "│"
    text = Text("".join(cells), style=style(gain) if gain else "default", no_wrap=True)
    guess = cell(predicted.speedup) if predicted else None
    if guess is not None:
        cells[guess] = "◇" if cells[guess] != "●" else "◈"
        text = Text("".join(cells), style=text.style, no_wrap=True)
        text.stylize("default", guess, guess + 1)
    return text


def _between(start: int | None, end: int | None) -> range:
    if start is None or end is None:
        return range(0)
    return range(min(start, end), max(start, end) + 1)


def curve(values: Sequence[float], width: int = CURVE) -> str:
    """Values as characters of eight heights, each the mean of some; a gap is no number."""
    each = -(-len(values) // width)
    means = [sum(part) / len(part) for part in _parts(values, each)]
    known = [mean for mean in means if math.isfinite(mean)]
    if not known:
        return " " * len(means)
    low, high = min(known), max(known)

    def level(mean: float) -> str:
        share = (mean - low) / (high - low) if high > low else 0.0
        return _LEVELS[round(share * (len(_LEVELS) - 1))]

    return "".join(level(mean) if math.isfinite(mean) else " " for mean in means)


def _parts(values: Sequence[float], each: int) -> Iterator[Sequence[float]]:
    for start in range(0, len(values), each):
        yield values[start : start + each]
