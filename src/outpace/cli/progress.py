"""Progress on stderr: a bar below the target's own output on a terminal, a line a phase elsewhere.

The target writes to the same terminal, so the bar has the last row to itself: the terminal is told
to scroll only the rows above it. At the end the row is given back.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from types import TracebackType
from typing import Protocol

from outpace.cli.stdout import in_utf8
from outpace.cli.telling import colors

EVERY_S = 0.2
WIDTH = 24
FEWEST_ROWS = 4


class Progress(Protocol):
    """Told how far a phase is."""

    def __call__(self, phase: str, done: float, total: float, note: str = "") -> None: ...


class ProgressLine:
    """Shows progress while it is entered; at most five times a second."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        """also once nothing can be written"""
        self.terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self.phase = ""
        self.last = 0.0
        self.rows = 0
        """rows of the terminal while its last one is ours, else 0"""

    def __call__(self, phase: str, done: float, total: float, note: str = "") -> None:
        """Show how far we are."""
        new = phase != self.phase
        now = time.monotonic()
        if self.quiet or not (new or (self.terminal and now - self.last >= EVERY_S)):
            return
        self.last, self.phase = now, phase
        if self.terminal:
            self._draw(phase, done, total, note)
        else:
            self._write(f"outpace: {phase}\n")

    def _draw(self, phase: str, done: float, total: float, note: str) -> None:
        columns, rows = _size()
        if rows < FEWEST_ROWS:
            return
        if rows != self.rows:
            self._take_row(rows)
        share = min(1.0, max(0.0, done / total)) if total else 0.0
        filled = round(share * WIDTH)
        full, rest = ("━", "╌") if in_utf8(sys.stderr) else ("#", "-")
        bar = full * filled + rest * (WIDTH - filled)
        text = f"outpace  {phase}  {bar}  {100 * share:3.0f} %  {note}"[: columns - 1]
        if colors() is not False:
            text = text.replace(full * filled, f"\x1b[36m{full * filled}\x1b[39m", 1)
        self._write(f"\x1b7\x1b[{rows};1H\x1b[2K{text}\x1b8")

    def _take_row(self, rows: int) -> None:
        """Have the rows above the last one scroll; the cursor stays with what was written."""
        first = "" if self.rows else "\n\x1b[1A"
        self._write(f"{first}\x1b7\x1b[1;{rows - 1}r\x1b8")
        self.rows = rows

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the row back."""
        if self.rows:
            self._write(f"\x1b7\x1b[r\x1b[{self.rows};1H\x1b[2K\x1b8")
            self.rows = 0

    def _write(self, text: str) -> None:
        """A terminal that was closed, or a disk that is full, does not stop what is measured."""
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            self.quiet = True


def _size() -> tuple[int, int]:
    """Columns and rows of the terminal that is stderr, where `shutil` asks stdout; COLUMNS and LINES win."""
    try:
        seen = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError):
        return shutil.get_terminal_size()
    told = (os.environ.get(name, "") for name in ("COLUMNS", "LINES"))
    columns, rows = (int(text) if text.isdecimal() else 0 for text in told)
    return columns or seen.columns or 80, rows or seen.lines or 24
