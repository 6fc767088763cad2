"""Progress on stderr: one line that is drawn anew on a terminal, one line a phase elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

EVERY_S = 0.25
WIDTH = 24


class ProgressLine:
    """Called with (phase, done, total, note)."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.terminal = sys.stderr.isatty()
        self.phase = ""
        self.last = 0.0
        self.drawn = False

    def __call__(self, phase: str, done: float, total: float, note: str = "") -> None:
        """Show how far we are."""
        if self.quiet:
            return
        now = time.monotonic()
        if phase == self.phase and (not self.terminal or now - self.last < EVERY_S):
            return
        self.last, new = now, phase != self.phase
        self.phase = phase
        if self.terminal:
            self._draw(phase, done, total, note)
        elif new:
            print(f"outpace: {phase}", file=sys.stderr, flush=True)

    def _draw(self, phase: str, done: float, total: float, note: str) -> None:
        share = min(1.0, done / total) if total else 0.0
        bar = "━" * round(share * WIDTH) + "╌" * (WIDTH - round(share * WIDTH))
        text = f"outpace  {phase:<12} {bar} {100 * share:3.0f} %  {note}"
        sys.stderr.write(f"\r\x1b[2K{text[:100]}")
        sys.stderr.flush()
        self.drawn = True

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the line clean."""
        if self.drawn:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
