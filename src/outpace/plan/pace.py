"""How fast a training goes while it runs, and so when it ends.

Steps are averaged over blocks of time, and blocks with exponential weights. Machines change their
speed for good as well (another job comes, a clock is throttled): after three blocks in a row that
are far off to the same side what was before is forgotten, until one such change is undone by the
next. What happens besides steps, validation and checkpoints for instance, is counted apart, by the
steps between two such pauses; and so is by how much single steps stall.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from outpace.measure.statistics import median
from outpace.plan.fluctuation import Fluctuation
from outpace.records.plan import Estimate

SHORTEST_BLOCK_S, LONGEST_BLOCK_S = 1.0, 60.0
BLOCK_SHARE = 0.02
"""of the time since the first step that a block takes: the memory grows with the run"""
MEMORY = 20
"""blocks that an average remembers"""
RECENT_S, RECENT = 1.0, 5
"""seconds of steps, and at least so many, by which the next one's length is judged"""
STALL = 4.0
"""times the median that a step counts for at most there: one alone may have been a pause"""
FAR, IN_A_ROW = 1.25, 3
"""a change for good: blocks that take so many times as long, or as short"""
MOST_SLOWER = 3.0
"""times as long that anything else takes on a busy machine; steps, whose threads wait for each other, may
take ten"""
PAUSE = 3.0
"""steps' time that a pause takes at least"""
OVERDUE = 2.0
"""times the most steps between pauses, without a pause, after which none of its length is expected"""
FEWEST_APART, APART = 3, 0.02
"""pauses that tell how many steps are from one to the next, and by how much of them they may differ"""
AS_LONG = 0.5
"""of the longest pause, from which on another is one of its kind: a busy machine makes as much"""
NEAR = 8
"""steps, or groups, up to which pauses may be as far apart by chance, as where a machine is busy"""
TRUSTED_BLOCKS = 3
"""before anything follows from their average"""
WARM_UP = 5
"""steps whose pauses are start-up"""
FLOOR = 0.01
SPREAD, SPREAD_BLOCKS = 0.05, 3
"""what is taken for the spread of blocks before any is seen, and how many blocks that is worth"""
FEWEST_ALIKE = 2.0
"""blocks that count as one, as neighbours are alike: at least so many, and at most the memory"""
SHORT_OF = 2.0
"""times that a correlation over so few blocks is measured too short"""
Z80 = 1.2816


class Between(NamedTuple):
    """Seconds that lie there."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """By their logarithms."""
        return math.sqrt(self.low * self.high)

    def nearest(self, seconds: float) -> float:
        """To what was told by other means."""
        return min(self.high, max(self.low, seconds))


@dataclass
class Pause:
    """One that a step had in it, or a group of them."""

    changes: int
    """of the machine's speed, before it"""
    seconds: float
    step_s: float
    """seconds of a step before it"""
    at: int
    """steps before it"""
    group: int
    after_s: float = 0.0
    after: int = 0
    """seconds of the first steps after it, and how many"""

    def note(self, seconds: float, count: int) -> bool:
        """So many steps came after it; whether they are enough to tell how fast the machine was then."""
        self.after_s += seconds * count
        self.after += count
        return self.after >= RECENT and self.after_s >= RECENT_S

    def now(self, step_s: float) -> Between:
        """Seconds that it would take where a step takes so long: no less than it did.

        Where the machine's speed changed about then, nobody knows how much of it was before.
        """
        around = [self.step_s]
        if self.after and not 1 / FAR < self.after_s / self.after / self.step_s < FAR:
            around.append(self.after_s / self.after)
        slower = [min(MOST_SLOWER, max(1.0, step_s / each)) for each in around]
        return Between(self.seconds * min(slower), self.seconds * max(slower))


class Cycle(NamedTuple):
    """Steps to the next pause, and from one to the next; and how long one takes now."""

    left: int
    every: int
    seconds: float


def apart(pauses: Iterable[Pause]) -> list[int]:
    """Steps from one to the next; as long as they are few, also those before the first."""
    at = [pause.at for pause in pauses]
    if len(at) < FEWEST_APART:
        at.insert(0, 0)
    return [later - earlier for earlier, later in itertools.pairwise(at)]


class Pace:
    """Seconds of a step and of the pauses between steps, as they are now."""

    def __init__(self) -> None:
        self.step_s: float | None = None
        self.steps = 0
        self.seconds = 0.0
        self.blocks = 0
        """since the last change"""
        self.changes = 0
        """for good, of the machine's speed"""
        self.comes_and_goes = False
        """one change was to the other side than that before: it is reckoned with the mean of all steps"""
        self._slowed: bool | None = None
        self.paused = 0
        """times that something else was done for longer than a few steps"""
        self.warming = False
        """the only block is the first"""
        self._pauses: deque[Pause] = deque(maxlen=FEWEST_APART)
        self._long: deque[Pause] = deque(maxlen=FEWEST_APART)
        """these, and steps that took much longer than others though nothing was seen to happen in them"""
        self._ends: deque[Pause] = deque(maxlen=FEWEST_APART)
        """what lay between epochs and was too short for a pause"""
        self._full: deque[Pause] = deque(maxlen=FEWEST_APART)
        """pauses of the longest kind: quick evaluations would push the full ones out of the last few"""
        self._begun: Pause | None = None
        """the newest, until it is known how fast the machine was after it"""
        self._recent: deque[tuple[float, int]] = deque()
        self._recent_s = 0.0
        self._fastest = math.inf
        self._spread = SPREAD**2
        self._together = 0.5 * SPREAD**2
        """mean product of a block's distance from the average with that of the block before"""
        self._apart = 0.0
        self._sum = 0.0
        """of the logarithms of blocks since the last change"""
        self._block_s, self._block_steps = 0.0, 0
        self._far: list[tuple[float, int]] = []
        self._paused, self._paused_until = 0.0, 0
        self._at_epochs = False
        """a pause lay between two epochs: another will at the next"""
        self._since, self._longest_since = 0.0, 0.0
        """seconds of what was too short for a pause, since the last one"""
        self._ever, self._lately = Fluctuation(), Fluctuation()
        """all steps, and those since the machine's speed changed"""
        self._stalled, self._stalls = 0.0, 0
        """seconds by which clean steps took longer than those around them, and how often they did"""
        self._shortest = math.inf

    def note(
        self, seconds: float, count: int = 1, *, clean: bool = True, begins: bool = False
    ) -> None:
        """``count`` steps took so long each; ``clean``: nothing else happened in them.

        ``begins``: they are an epoch's first, so that what else happened lay between two epochs.
        """
        self.seconds += seconds * count
        if clean:
            self._shortest = min(self._shortest, seconds)
            usual = seconds
            if self.step_s is not None and seconds > STALL * self.recent_s:
                usual = self.recent_s
                self._note_stall((seconds - usual) * count, count)
            self._keep_recent(seconds, count)
            seconds = usual
            if self._begun is not None and self._begun.note(seconds, count):
                self._begun = None
            self._block_s += seconds * count
            self._block_steps += count
            if self.blocks:  # else it is warm-up
                self._ever.note(seconds * count, count)
                self._lately.note(seconds * count, count)
            length = min(LONGEST_BLOCK_S, max(SHORTEST_BLOCK_S, BLOCK_SHARE * self.seconds))
            if self._block_s >= length or self.step_s is None:
                self._end_block()
        elif self.step_s is not None:
            self._pause((seconds - self.recent_s) * count, count, begins)
        self.steps += count

    def left(self, steps: int, pauses_s: float = 0.0) -> Estimate:
        """Seconds that so many more steps take, pauses included.

        ``pauses_s``: what pauses may take in all, as long as none was met.
        """
        seen_by = self._ever if self.comes_and_goes else self._lately
        step_s = (seen_by is self._ever and seen_by.step_s) or self.step_s or 0.0
        if self.blocks == 0 or self.warming:
            step_s = self.recent_s  # those before it are warm-up
        running, pausing = steps * step_s, pauses_s
        stalling = steps * self._stalled / max(1, self.steps)
        chance = Z80 / math.sqrt(max(1, self._stalls))
        if self._paused_until:
            pausing = steps * self._paused / self._paused_until
        most = pausing
        if self.overdue:
            pausing = steps * self._since / (self.steps - self._pauses[-1].at)
            most = max(pausing, steps * self._paused / self.steps)
        block_s = min(LONGEST_BLOCK_S, max(SHORTEST_BLOCK_S, BLOCK_SHARE * self.seconds))
        seen, to_come = max(1, min(self.blocks, MEMORY)), max(1.0, running / block_s)
        apart = math.sqrt(self._spread * self._alike() * (1 / seen + 1 / to_come) + FLOOR**2)
        factor = max(math.exp(Z80 * apart), seen_by.limit(running))
        doubt = 1.0 if self._paused_until else 2.0
        least = pausing / doubt
        if self.paused == 1 and not self._at_epochs:
            least = 0.0  # once, in the midst of an epoch: it need not come again
        return Estimate(
            running + pausing + stalling,
            running / factor + least + stalling * max(0.0, 1 - chance),
            running * factor + most * doubt + stalling * (1 + chance),
        )

    @property
    def recent_s(self) -> float:
        """Seconds of a step as the last few were."""
        if not self._recent:
            return self.step_s or 0.0
        most = STALL * median(seconds for seconds, _ in self._recent)
        steps = sum(count for _, count in self._recent)
        return sum(min(most, seconds) * count for seconds, count in self._recent) / steps

    @property
    def overdue(self) -> bool:
        """Whether pauses have not come again, as a first validation that made what the others keep."""
        return self._are_overdue(self._pauses)

    @property
    def pause_s(self) -> Between | None:
        """Seconds that the longest of the pauses that come again would take now; None: there was none."""
        if not self._pauses or not self.step_s:
            return None
        kinds = [each for each in (self._pauses, self._full) if not self._are_overdue(each)]
        if not kinds:
            since = self._longest_since
            return Between(since, since) if since else None
        # What slows steps down slows validations in another measure: those since then tell it.
        return self._longest(self.step_s, *kinds)

    @property
    def short_end_s(self) -> Between | None:
        """The same of what lay between epochs and was too short for a pause."""
        return self._longest(self.step_s, self._ends) if self._ends and self.step_s else None

    @property
    def usual_s(self) -> float:
        """Seconds of a step that is not slowed down by much more than anything else would be."""
        # The shortest step may be one of an epoch's last batch, which has fewer samples.
        fastest = self._fastest if self._fastest < math.inf else self._shortest
        return min(self.step_s or 0.0, MOST_SLOWER * fastest)

    @property
    def cycle(self) -> Cycle | None:
        """Of pauses, and of steps as long as these, that are evenly apart; None where they are not."""
        if len(self._long) < FEWEST_APART or not self.step_s:
            return None
        first, middle, last = (pause.at for pause in self._long)
        every, off = last - middle, max(pause.group for pause in self._long)
        left = last + every - self.steps
        even = abs(every - (middle - first)) <= off + APART * every
        if not even or every <= NEAR * off or left < -off:
            return None
        # Due before half-way from the next one to that after it, it is the next one.
        full = self._full if self._is_full_due(last + 1.5 * every) else ()
        return Cycle(max(0, left), every, self._longest(self.step_s, self._long, full).middle)

    def _is_full_due(self, steps: float) -> bool:
        """Whether a pause of the longest kind may come before so many steps are over."""
        if not self._full or self._are_overdue(self._full):
            return False
        return self._full[-1].at + min(apart(self._full)) < steps

    def _are_overdue(self, pauses: deque[Pause]) -> bool:
        """Whether they have not come again for much longer than they were ever apart."""
        return bool(pauses) and self.steps - pauses[-1].at > OVERDUE * max(apart(pauses))

    def _longest(self, step_s: float, *kinds: Sequence[Pause]) -> Between:
        """Of each kind those since the machine's speed changed, as long as it would be now."""
        now = [
            pause.now(step_s)
            for kind in kinds
            for pause in kind
            if pause.changes == kind[-1].changes
        ]
        return Between(max(each.low for each in now), max(each.high for each in now))

    def _keep_recent(self, seconds: float, count: int) -> None:
        self._recent.append((seconds, count))
        self._recent_s += seconds * count
        while len(self._recent) > RECENT:
            oldest, steps = self._recent[0]
            if self._recent_s - oldest * steps < RECENT_S:
                break
            self._recent_s -= oldest * steps
            self._recent.popleft()

    def _end_block(self) -> None:
        self._average_block()
        if self.blocks >= TRUSTED_BLOCKS and self.step_s is not None:
            self._fastest = min(self._fastest, self.step_s)

    def _average_block(self) -> None:
        mean, steps = self._block_s / self._block_steps, self._block_steps
        self._block_s, self._block_steps = 0.0, 0
        if self.step_s is None:
            self.step_s, self.blocks = (
                mean,
                0,
            )  # one step, most often its first: only until a block ends
            return
        if self.blocks == 0 or self.warming:
            # The first block is warm-up, up to a fifth slower: the second stands for it.
            self.warming = self.blocks == 0
            self.step_s, self.blocks, self._sum = mean, 1, math.log(mean)
            return
        apart = math.log(mean / self.step_s)
        if abs(apart) > math.log(FAR):
            self._note_far(mean, steps, slower=apart > 0)
            return
        self._forget_far()
        self.blocks += 1
        self.step_s += max(1 / self.blocks, 1 / MEMORY) * (mean - self.step_s)
        # The average follows a slow drift, so the spread is that around the mean of all blocks.
        self._sum += math.log(mean)
        apart = math.log(mean) - self._sum / self.blocks
        weight = 1 / (self.blocks - 1 + SPREAD_BLOCKS)
        self._spread += weight * (apart**2 - self._spread)
        self._together += weight * (apart * self._apart - self._together)
        self._apart = apart

    def _alike(self) -> float:
        """Blocks that are worth one that stood alone, by the correlation of neighbours."""
        alike = max(0.0, min(0.99, self._together / self._spread))
        return min(MEMORY, max(FEWEST_ALIKE, SHORT_OF * (1 + alike) / (1 - alike)))

    def _note_far(self, mean: float, steps: int, *, slower: bool) -> None:
        """A block that is far off: a stall, or the first of a change for good."""
        assert self.step_s is not None
        if self._far and (self._far[0][0] > self.step_s) != slower:
            self._forget_far()
        self._far.append((mean, steps))
        if len(self._far) >= IN_A_ROW:
            new = self._far[1:]  # the first may lie half before the change
            self.step_s = sum(m * n for m, n in new) / sum(n for _, n in new)
            self._sum = sum(math.log(m) for m, _ in new)
            self.blocks, self._far = len(new), []
            self.changes += 1
            self.comes_and_goes = self.comes_and_goes or self._slowed is (not slower)
            self._slowed = slower
            self._lately = Fluctuation()

    def _forget_far(self) -> None:
        """It was no change, but a stall of several steps."""
        assert self.step_s is not None
        for mean, steps in self._far:
            if mean > self.step_s:
                self._stalled += (mean - self.step_s) * steps
                self._stalls += 1
        self._far = []

    def _pause(self, seconds: float, count: int, begins: bool) -> None:
        assert self.step_s is not None
        if self.steps < WARM_UP or seconds <= 0:
            return
        self._paused += seconds
        if seconds > PAUSE * self.step_s:
            self._paused_until = self.steps
            self._since = self._longest_since = 0.0
            self.paused += 1
            self._at_epochs = self._at_epochs or begins
            pause = self._note_long(seconds, count)
            self._pauses.append(pause)
            self._keep_full(pause)
        else:
            self._since += seconds
            self._longest_since = max(self._longest_since, seconds)
            if begins:
                self._ends.append(self._noted(seconds, count))

    def _keep_full(self, pause: Pause) -> None:
        """Where it is one of the longest kind that comes again."""
        longest = max((each.seconds for each in self._full), default=0.0)
        if self._are_overdue(self._full) or longest < AS_LONG * pause.seconds:
            self._full.clear()
        elif pause.seconds < AS_LONG * longest:
            return
        self._full.append(pause)

    def _note_stall(self, seconds: float, count: int) -> None:
        self._note_long(seconds, count)
        if self.steps >= WARM_UP:
            self._stalled += seconds
            self._stalls += 1

    def _noted(self, seconds: float, count: int) -> Pause:
        assert self.step_s is not None
        # Where the last steps took longer it did too; when these have come into the average is later.
        around = max(self.step_s, self.recent_s)
        return Pause(self.changes, seconds, around, self.steps, count)

    def _note_long(self, seconds: float, count: int) -> Pause:
        found = self._noted(seconds, count)
        if self.steps >= WARM_UP:
            self._long.append(found)
        self._begun = found
        return found
