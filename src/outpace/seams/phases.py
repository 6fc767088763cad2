"""The clock of the seams: exclusive wall time by phase on the training thread.

A phase that starts inside another stops the other's clock, so that the phases of a step never
count a moment twice. What no phase explains is "elsewhere", and after an epoch's last batch "epoch_end".
Of a step in which `torch.compile` compiled the model once more, forward and backward are "compiling".
"""

from __future__ import annotations

from threading import get_ident
from time import perf_counter_ns

NAMES = (
    "input",
    "transfer",
    "forward",
    "backward",
    "optimizer",
    "sync",
    "validation",
    "checkpoint",
    "epoch_end",
    "compiling",
    "elsewhere",
)


WORK = ("forward", "backward", "optimizer")
"""in which a step is computed"""


class Phases:
    """A stack of running phases; times in nanoseconds since the last ``take``."""

    __slots__ = ("events", "idle", "mark", "owner", "resting", "stack", "starts", "totals")

    def __init__(self) -> None:
        self.owner = get_ident()
        self.stack: list[str] = []
        self.idle = "elsewhere"
        """what time is where no phase runs; it is to change while one does, or just after ``take``"""
        self.totals: dict[str, int] = dict.fromkeys(NAMES, 0)
        self.mark = perf_counter_ns()
        self.events: list[tuple[str, int, int]] | None = None
        """(phase, start, end) of each phase, while a trace is wanted"""
        self.starts: list[int] = []
        self.resting = False
        """the running steps are counted, not looked into"""

    def push(self, phase: str) -> None:
        """Start a phase."""
        now = perf_counter_ns()
        stack = self.stack
        self.totals[stack[-1] if stack else self.idle] += now - self.mark
        stack.append(phase)
        self.mark = now
        if self.events is not None:
            self.starts.append(now)

    def pop(self) -> None:
        """End the newest phase."""
        now = perf_counter_ns()
        if self.stack:
            phase = self.stack.pop()
            self.totals[phase] += now - self.mark
            self.mark = now
            if self.events is not None and self.starts:
                self.events.append((phase, self.starts.pop(), now))

    def current(self) -> str | None:
        """The newest running phase."""
        return self.stack[-1] if self.stack else None

    def take(self) -> dict[str, int]:
        """The times since the last take; the running phases go on from now."""
        now = perf_counter_ns()
        self.totals[self.stack[-1] if self.stack else self.idle] += now - self.mark
        self.mark = now
        totals, self.totals = self.totals, dict.fromkeys(NAMES, 0)
        return totals

    def unwind(self, depth: int) -> None:
        """Forget phases above ``depth``, which an exception of the target has left running."""
        while len(self.stack) > depth:
            self.pop()
