"""How much of a training's time and steps is used, and whether there is enough left for one more step.

What an ending takes, a last validation and a checkpoint, is measured on the way and kept free. Steps
are judged by the last few: a budget is overrun by at most what a step takes longer than those, once there
were three.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, final

import torch

from outpace.measure.statistics import median
from outpace.plan.countdown import since_boot

RECENT, FEWEST = 5, 3
"""steps that the next one is judged by, at least so many: by the second longest, as one may have paused"""
DOZEN = 12
"""steps that the pace is told by: their median, which some pauses do not change"""
VARIES = 1.1
"""times as long as it took before that the ending may take"""


@final
class Clock:
    """``seconds`` and ``steps``: what there is of each; None: no limit. ``now``: any clock in seconds."""

    def __init__(
        self,
        seconds: float | None = None,
        steps: int | None = None,
        now: Callable[[], float] = since_boot,
    ) -> None:
        self.seconds = math.inf if seconds is None else seconds
        self.steps = steps
        self.limit: str | None = "steps"
        """and what they come from; None: they are about so many, and something else ends them"""
        self.now = now
        self.elapsed = 0.0
        """seconds so far, those before a resume included"""
        self.first_s: float | None = None
        """of them before the first step: start-up, of which the rate's course is not to know"""
        self.used = 0.0
        """share of the time or of the steps, whichever is more; never falls"""
        self.validation_s = self.save_s = self.write_s = 0.0
        """what the last validation and the last checkpoint took, and what writing at the end will"""
        self.validation_steps = 0.0
        """what a validation is taken to be worth until one was made, at the pace of a dozen steps"""
        self._from: tuple[int, float] = (0, 0.0)
        """step and share that steps are counted from"""
        self._of: int | None = None
        """and of how many"""
        self._since: tuple[float, float] | None = None
        """second and share that the time is counted from, since there is another amount of it"""
        self._before: float | None = None
        """seconds that there were before a resume"""
        self._recent: deque[float] = deque(maxlen=DOZEN)
        self._began = now()

    def read(self) -> float:
        """Seconds so far."""
        self.elapsed = self.now() - self._began
        return self.elapsed

    def within(self, share: float, began: float) -> bool:
        """Whether less than that share of all seconds has gone by since ``began``, which `read` told."""
        return self.read() - began < share * self.seconds

    def start(self) -> None:
        """Steps begin."""
        elapsed = self.read()
        self.first_s = elapsed if self.first_s is None else self.first_s

    def step_ended(self, step: int) -> None:
        """Note how long it took, and what is used by now."""
        before = self.elapsed
        self._recent.append(self.read() - before)
        self.used = max(self.used, self.by_steps(step))
        if self.seconds < math.inf:
            self.used = max(self.used, self.by_time())

    def by_time(self) -> float:
        """Share of the time that is used."""
        first, share = self._since or (self.first_s or 0.0, 0.0)
        gone = (self.elapsed - first) / max(1e-9, self.seconds - self.ending_s - first)
        return share + (1.0 - share) * min(1.0, gone)

    def by_steps(self, step: int) -> float:
        """Share of the steps that is used."""
        if self.steps is None:
            return 0.0
        first, share = self._from
        # In brackets: the last step is to be 1 exactly, not one rounding below it.
        return share + (1.0 - share) * min(1.0, (step - first) / max(1, self.steps - first))

    @property
    def ending_s(self) -> float:
        """Seconds that are needed once training ends."""
        return VARIES * (self.judging_s + self.save_s + self.write_s)

    @property
    def judging_s(self) -> float:
        """Seconds that a validation takes."""
        return self.validation_s or self.validation_steps * self.pace_s

    @property
    def step_s(self) -> float:
        """Seconds that the next step may take; 0 as long as there were but a few, with start-up in them."""
        recent = list(self._recent)[-RECENT:]
        return sorted(recent)[-2] if len(recent) >= FEWEST else 0.0

    @property
    def pace_s(self) -> float:
        """Seconds that a step takes as a rule; 0 before there were a dozen, unless no dozen will fit."""
        missing = DOZEN - len(self._recent)
        if not missing:
            return median(self._recent)
        # Start-up and pauses make steps longer, and never shorter.
        least = min(self._recent) if len(self._recent) >= FEWEST else 0.0
        return least if self.elapsed + missing * least > self.seconds else 0.0

    def over(self, step: int) -> str | None:
        """Why there is to be no further step, or None."""
        if self.steps is not None and step >= self.steps and self.limit is not None:
            return self.limit
        if self.seconds < math.inf and self.elapsed + self.step_s + self.ending_s > self.seconds:
            return "budget"
        return None

    def left(self, step: int) -> float:
        """Steps to the end, at the pace of the last few where it is by time; infinite without an end."""
        by_steps = math.inf if self.steps is None else self.steps - step
        seconds = self.seconds - self.ending_s - self.elapsed
        return max(0.0, min(by_steps, seconds / self.step_s if self.step_s else math.inf))

    def left_s(self, step: int) -> float:
        """Seconds to the end of the steps at the pace so far; infinite where that is not known."""
        if self.steps is None or not step:
            return math.inf
        running = self.elapsed - (self.first_s or 0.0)
        return running * max(0, self.steps - step) / step

    def set_end(self, steps: int | None, limit: str | None, step: int) -> None:
        """How many steps there are; the share that is used stays where it is."""
        resumed = self._before is not None
        if steps != self._of and (resumed or self._of is not None):
            self._from = (step, self.used)
            if steps is None:
                self._since = (self.elapsed, self.used)
        self.steps, self.limit, self._of = steps, limit, steps

    @property
    def longer(self) -> bool:
        """Whether there is more time than before a resume."""
        return self._before is not None and self.seconds > self._before

    def state_dict(self) -> dict[str, Any]:
        """What is used."""
        return {
            "elapsed": self.elapsed,
            "first": self.first_s,
            "used": self.used,
            "steps": self.steps,
            "seconds": self.seconds,
            "from": self._from,
            "since": self._since,
            "recent": list(self._recent),
            "endings": (self.validation_s, self.save_s, self.write_s, self.validation_steps),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there, by what was read so far later; `set_end` is to follow."""
        self._began -= float(state["elapsed"])
        self.read()
        self.used = float(state["used"])
        self.first_s = state["first"]
        first, share = state["from"]
        self._from, self._of = (int(first), float(share)), state["steps"]
        self._before = float(state["seconds"])
        since = state.get("since")  # an older checkpoint has none
        self._since = since and (float(since[0]), float(since[1]))
        if self.seconds != self._before:
            self._since = (self.elapsed, self.used)
        self._recent.extend(state["recent"])
        self.validation_s, self.save_s, self.write_s, self.validation_steps = state["endings"]


@final
class Ahead:
    """Keeps the host but a few steps before a GPU, which does later what it is asked for: the clock is to
    tell the time of steps, not of asking for them.
    """

    MOST = 2
    """steps: enough that the device never waits for the host"""

    def __init__(self, device: torch.device) -> None:
        self.asked: deque[torch.cuda.Event] | None = deque() if device.type == "cuda" else None

    def step_ended(self) -> None:
        """A step was asked for; wait for the one before the last ones."""
        if self.asked is None:
            return
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record()
        self.asked.append(event)
        if len(self.asked) > self.MOST:
            self.asked.popleft().synchronize()


def done(now: Callable[[], float]) -> float:
    """The time when all that was asked of the device is done."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return now()
