"""Fresh memory that a step takes, and what the system works for it."""

from __future__ import annotations

from outpace.measure.counters import page_faults, system_s
from outpace.seams.host import Step


class Paging:
    """Counts over steps in which nothing but training happened.

    An epoch that starts workers is not in it: to fork a process takes many pages, which no other
    allocator would save.
    """

    def __init__(self) -> None:
        self.before = page_faults(), system_s()
        self.pages = 0
        self.system_s = 0.0
        self.steps = 0

    def note(self, step: Step) -> None:
        """A step ended."""
        pages, seconds = self.before
        self.before = page_faults(), system_s()
        if step.clean:
            self.pages += self.before[0] - pages
            self.system_s += self.before[1] - seconds
            self.steps += step.count

    def a_step(self) -> dict[str, float]:
        """Pages and the system's seconds a step."""
        steps = max(1, self.steps)
        return {"page_faults": self.pages / steps, "system_s": self.system_s / steps}
