"""A session under way, as another terminal shows it.

Only its files are read: what runs is not touched, and does not know that somebody looks.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from outpace.records.gain import Gain
from outpace.report import bars, labels, words
from outpace.report.axis import ratio_axis
from outpace.tune.files import PROGRESS

BAR, TRACK = 32, 24
"""columns"""
SILENT_S = 15.0
"""seconds without news after which they are told"""


class Seen(NamedTuple):
    """The newest word of a session. ``share``: of the phase that is done."""

    phase: str
    share: float
    note: str = ""
    gains: Mapping[str, Gain] = {}
    loss: float | None = None


def newest(session: Path) -> tuple[Path, float] | None:
    """The progress file that was written last, of all processes of a session, and when.

    What a target whose files are thrown away writes is its own: it lies in a session's scratch folder.
    """
    found = []
    for folder, inside, names in os.walk(session):  # it passes over what has just gone
        inside[:] = [name for name in inside if name != "scratch"]
        path = Path(folder, PROGRESS)
        with contextlib.suppress(OSError):  # replaced just now
            if PROGRESS in names:
                found.append((path.stat().st_mtime, path))
    return max(found)[::-1] if found else None


def of_experiments(told: Mapping[str, Any]) -> Seen:
    """What a process that measures has written down."""
    total = float(told["total"])
    share = float(told["done"]) / total if total else 0.0
    gains = {
        name: Gain(speedup, low, high, "measured")
        for name, (speedup, low, high) in told.get("gains", {}).items()
    }
    return Seen(str(told["phase"]), min(1.0, max(0.0, share)), str(told["note"]), gains)


def picture(title: str, seen: Seen | None, losses: Sequence[float], silent_s: float) -> Group:
    """What a terminal shows."""
    return Group(*_lines(title, seen, losses, silent_s))


def _lines(
    title: str, seen: Seen | None, losses: Sequence[float], silent_s: float
) -> Iterator[Text | Table]:
    yield Text(f"  {title}", "bold", no_wrap=True, overflow="ellipsis")
    yield Text()
    if seen is None:
        yield Text("  nothing was told yet", "dim")
        return
    filled = round(BAR * seen.share)
    yield Text.assemble(
        f"  {seen.phase}  ",
        ("━" * filled, "cyan"),
        ("╌" * (BAR - filled), "dim"),
        f"  {100 * seen.share:3.0f} %  {seen.note}",
        no_wrap=True,
        overflow="ellipsis",
    )
    if len(losses) > 1:
        yield Text()
        yield Text.assemble(
            "  loss  ", (bars.curve(losses), "cyan"), f"  {losses[0]:.4g} → {losses[-1]:.4g}"
        )
    if seen.gains:
        yield Text()
        yield _gains(seen.gains)
    if silent_s > SILENT_S:
        yield Text()
        yield Text(f"  nothing new for {silent_s:.0f} s", "yellow")


def _gains(gains: Mapping[str, Gain]) -> Table:
    ratios = [r for gain in gains.values() for r in (gain.speedup, gain.low, gain.high)]
    axis = ratio_axis(ratios)
    table = Table.grid(padding=(0, 2))
    for name, gain in gains.items():
        table.add_row(
            f"  {labels.arm(name)}",
            bars.track(axis, gain, TRACK),
            words.gain(gain),
        )
    return table
