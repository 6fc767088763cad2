"""Quantities and places as a person reads them: rounded, with units, safe to print.

Rounding is for eyes only; exact figures are in the session's JSON. What is not a number is shown as
a dash and never as a zero.
"""

from __future__ import annotations

import math
import os
import shlex

from outpace.records.gain import Gain
from outpace.records.target import Target

MISSING = "—"
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SI = ("", "k", "M", "G", "T", "P", "E")


def finite(value: float | None) -> bool:
    """Whether a value is there and is a number."""
    return value is not None and math.isfinite(value)


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, exponents only where it is huge or tiny."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.{digits - 1}e}"
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else _lead(value)
    return f"{value:,.{max(0, digits - whole)}f}"


def short(value: float) -> str:
    """Two digits, none of them a zero at the end: ``0.006``, ``1e-05``."""
    return f"{value:.2g}" if math.isfinite(value) else number(value)


def _lead(value: float) -> int:
    """Digits that a fraction does not show: 0.5 has none, 0.05 has one to spare."""
    return math.floor(math.log10(abs(value))) + 1 if value else 1


def share(value: float | None) -> str:
    """A share of one in percent."""
    if not finite(value):
        return MISSING
    percent = 100 * (value or 0.0)
    return f"{percent:.1f} %" if abs(percent) < 1000 else f"{number(percent)} %"


def change(ratio: float | None) -> str:
    """A ratio as a signed change in percent: 1.006 is ``+0.6 %``."""
    if not finite(ratio):
        return MISSING
    percent = 100 * ((ratio or 0.0) - 1)
    return f"{percent:+.1f} %" if abs(percent) < 1000 else f"{percent:+.2g} %"


def seconds(value: float | None) -> str:
    """A duration from nanoseconds to days."""
    if value is None or not finite(value):
        return MISSING
    if value < 0:
        return f"-{seconds(-value)}"
    for limit, scale, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if 0 < value < limit * 0.9995:
            return f"{number(value * scale)} {unit}"
    if value < 119.5:
        return f"{number(value)} s"
    return _long(value)


def _long(value: float) -> str:
    if value < 3570:
        minutes, rest = divmod(round(value), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    minutes = round(value / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    if value >= 1000 * 86400:
        return f"{number(value / 86400)} d"
    hours = round(value / 3600)
    return f"{hours // 24} d {hours % 24} h"


MOST = 30
"""speed-ups are told up to here: a cost that is nearly all of a step would give any number"""


def size(value: float | None) -> str:
    """Bytes in binary units."""
    return _scaled(value, 1024.0, _BYTES)


def rate(value: float | None, unit: str) -> str:
    """A rate in decimal units: ``184 GFLOP/s``."""
    return _scaled(value, 1000.0, tuple(prefix + unit for prefix in _SI))


def _scaled(value: float | None, base: float, units: tuple[str, ...]) -> str:
    if value is None or not finite(value):
        return MISSING
    step = 0
    while abs(value) >= 0.9995 * base and step < len(units) - 1:
        value /= base
        step += 1
    return f"{number(value)} {units[step]}" if step else f"{value:.0f} {units[0]}"


def times(value: float | None) -> str:
    """A speed-up: ``2.93×``; two decimals near one, two digits far below it, and none beyond sense."""
    if value is not None and value > MOST:
        return f"over {MOST}×"
    if value is None or not finite(value) or abs(value) >= 10:
        return f"{number(value)}×" if value is not None and not math.isnan(value) else MISSING
    return f"{value:.2f}×" if abs(value) >= 0.1 else f"{number(value, 2)}×"


def interval(gain: Gain) -> str:
    """The interval of a gain, ``2.80–3.07``; empty where there is none."""
    if gain.low == gain.high == gain.speedup:
        return ""
    if gain.low > MOST:
        return ""
    return f"{times(gain.low).rstrip('×')}–{times(gain.high).rstrip('×')}"


def gain(value: Gain | None) -> str:
    """A gain with its interval: ``2.93× (2.80–3.07)``."""
    if value is None:
        return MISSING
    within = interval(value)
    return f"{times(value.speedup)} ({within})" if within else times(value.speedup)


def plain(text: str) -> str:
    """Text from outside on one line, without characters that steer a terminal."""
    return "".join(c if c.isprintable() else "·" if c not in "\r\n\t" else " " for c in text)


def block(text: str) -> str:
    """Text from outside whose lines are kept, without characters that steer a terminal."""
    return "\n".join(plain(line.expandtabs(4)) for line in text.splitlines())


def place(where: str | None, cwd: str = ".") -> str:
    """A ``file:line`` relative to the directory that the target runs in, where it lies inside."""
    if not where:
        return ""
    if os.path.isabs(where) and os.path.isabs(cwd):
        inside = os.path.relpath(where, cwd)
        where = where if inside.startswith("..") else inside
    return plain(where)


def shorten(text: str, width: int) -> str:
    """Text cut on the left, where a path is least telling."""
    return text if len(text) <= width else "…" + text[len(text) - max(0, width - 1) :]


def command(*words: str) -> str:
    """Words as a command line that can be pasted into a shell."""
    return plain(shlex.join(words))


def outpace(verb: str, target: Target, *options: str) -> str:
    """The command line that does ``verb`` to a target."""
    end = ["--", *target.words] if target.kind == "command" else target.words
    return command("outpace", verb, *options, *end)
