"""Arms: ways to run a step, interleaved in blocks of steps inside one process.

A contest compares arms with its first, the base. In each round every arm runs one block, the base
one more after every third arm; what disturbs the machine then hits all alike, and only blocks of
the same round are compared. The first steps of a block are dropped (caches, queues), and so is the
whole first round, in which kernels are built and memory is taken.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from time import perf_counter

import torch
from torch import nn

from outpace.measure.counters import cpu_ns
from outpace.measure.statistics import ALONE, FEW, Noise, enough, median, noise_of, paired_gain
from outpace.records.arm import TOO_FEW, Arm
from outpace.records.files import replace_text
from outpace.records.gain import Gain
from outpace.seams.host import Host, Step
from outpace.seams.setup import AS_IS, Setup

BLOCK_S = 0.12
"""a block lasts about this long, but for one step at least"""
LONG_S = 3 * BLOCK_S
"""after so long a quarter of a block's steps will do: epochs that begin may take most of the time"""
MOST_STEPS = 500
FIRST_STEPS, SHORT_S = 16, BLOCK_S / 6
"""of each arm before the rounds, which tell how many a block has: so many where they are short"""
BASE_AFTER = 3
WIDEST = 50.0
"""limits of a gain are not told beyond this, either way"""
UNKNOWN = Gain(1.0, 1 / WIDEST, WIDEST, "measured")
FEWEST_ROUNDS, FEWEST_CLEAR = 2, 3
VAGUE = 4.0
"""times the lower limit of a gain that the upper one is, from which on an arm that may be slower as well as
faster tells nothing: two disturbed rounds once gave 39x [0.46, 50]"""
HOPELESS = 0.7
"""an arm this slow in each of its first rounds leaves its time to the others"""
FEWEST_SPARE, LEAST_SPARE = 2, 0.05
"""batches, and share of those taken, from which on they were not one more or less by chance"""
PAIRS = 60
"""rounds after which a contest ends in any case"""
SEEMS, SURELY, MORE = 1.05, 1.03, 0.25
"""an arm that is so much faster, and not surely by so much, has this share of the time more, for itself and
the base: a round of those two is short beside one of all"""


@dataclass
class Spare:
    """Batches that an arm's blocks took, and how many of them were ready before: in the long run as many
    are taken as are made.

    Arms that share their workers draw from one queue, which fills while the slower one runs.
    """

    taken: float = 0.0
    before: int = 0

    @property
    def slower(self) -> float:
        """Times as long as steps take with no more batches than are made meanwhile."""
        if self.before < max(FEWEST_SPARE, LEAST_SPARE * self.taken):
            return 1.0
        return self.taken / max(1.0, self.taken - self.before)


@dataclass
class Contest:
    """Arms to compare; ``arms``' first is the base. Times are seconds a step."""

    arms: dict[str, Setup]
    seconds: float
    name: str = ""
    min_rounds: int = 6
    max_rounds: int = PAIRS
    narrow: float = 0.02
    most_rounds: dict[str, int] = field(default_factory=dict)
    """arms that are not worth more rounds than so many"""
    pairs: dict[str, list[tuple[float, float, float, float]]] = field(default_factory=dict)
    """arm -> (base wall, arm wall, base CPU, arm CPU) of each round; NaN where workers were replaced"""
    spare: dict[str, Spare] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    spent: float = 0.0
    """seconds; not 0 at its begin where an earlier run of the script came to its end in it"""

    @property
    def base(self) -> str:
        """The first arm's name."""
        return next(iter(self.arms))

    @property
    def rounds(self) -> int:
        """Those that were measured."""
        return max((len(pairs) for pairs in self.pairs.values()), default=0)

    @property
    def late(self) -> bool:
        """Its time is up, and it has something to tell."""
        return self.spent >= self.seconds and self.rounds >= FEWEST_ROUNDS

    @property
    def clear(self) -> bool:
        """As many rounds as it needs at the least, or fewer that show of each arm which way it goes."""
        if self.rounds >= self.min_rounds:
            return True
        gains = [self.gain(arm) for arm in self.arms if arm != self.base]
        return self.rounds >= FEWEST_CLEAR and all(g.low > SURELY or g.high < 1 for g in gains)

    def gain(self, arm: str) -> Gain:
        """Speed-up of an arm over the base on the wall clock."""
        gain, held = self._gain(arm, 0), self.slower(arm) / self.slower(self.base)
        limits = (gain.speedup / held, gain.low / held, gain.high / held)
        return gain if held == 1.0 else Gain(*limits, "measured")

    def slower(self, arm: str) -> float:
        """Times as long as an arm's steps take in the long run."""
        return self.spare[arm].slower if arm in self.spare else 1.0

    def cpu_gain(self, arm: str) -> Gain:
        """Speed-up in CPU seconds."""
        return self._gain(arm, 2)

    def _gain(self, arm: str, column: int) -> Gain:
        pairs = self.pairs.get(arm, [])
        base, other = [p[column] for p in pairs], [p[column + 1] for p in pairs]
        if not any(b > 0 and o > 0 for b, o in zip(base, other, strict=True)):
            return UNKNOWN
        gain = paired_gain(
            base, other, beside=ALONE if len(pairs) >= FEW else self._noise(arm, column)
        )
        low, high = max(1 / WIDEST, gain.low), min(max(WIDEST, gain.speedup), gain.high)
        return Gain(gain.speedup, min(low, gain.speedup), high, "measured")

    def _noise(self, arm: str, column: int) -> Noise:
        """What the other arms' pairs show of it."""
        others = [pairs for name, pairs in self.pairs.items() if name != arm]
        return noise_of([([p[column] for p in o], [p[column + 1] for p in o]) for o in others])

    def results(self) -> list[Arm]:
        """All arms but the base, as records."""
        found = []
        for name in self.arms:
            pairs = self.pairs.get(name, [])
            if name == self.base or (not pairs and name not in self.failed):
                continue
            gain = self.gain(name)
            few = len(pairs) < FEWEST_ROUNDS or is_vague(gain)
            found.append(
                Arm(
                    name,
                    len(pairs),
                    median([p[1] for p in pairs]) * self.slower(name),
                    median([p[3] for p in pairs if math.isfinite(p[3])]),
                    gain,
                    self.cpu_gain(name),
                    self.failed.get(name) or (TOO_FEW if few else None),
                    self.base,
                )
            )
        return found


def is_vague(gain: Gain) -> bool:
    """Whether it tells nothing: what has it may be much slower as well as much faster."""
    return gain.low < 1.0 < gain.high and gain.high > VAGUE * gain.low


Program = Generator[Contest | None, Contest | None, None]
"""Yields a contest and is sent it back when it is over; yields None to let one step pass as it is."""


def settled(*models: nn.Module) -> float:
    """Seconds until the current CUDA device, and others that these models are on, have done all that they
    were asked for; 0 where none is in use.
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return 0.0
    return sum(map(_waited, _devices(models)))


def _devices(models: tuple[nn.Module, ...]) -> Iterator[torch.device | None]:
    """The current one, None, and after that the others: to look at a model's parameters takes a while."""
    yield None
    if torch.cuda.device_count() > 1:
        held = chain.from_iterable(model.parameters() for model in models)
        yield from {parameter.device for parameter in held if parameter.is_cuda}


def _waited(device: torch.device | None) -> float:
    begun = perf_counter()
    torch.cuda.synchronize(device)
    return perf_counter() - begun


class Scheduler:
    """Runs a program's contests over the steps of the target."""

    def __init__(
        self,
        host: Host,
        program: Program,
        *,
        marker: Path | None = None,
        excluded: dict[str, str] | None = None,
        progress: Callable[[Contest], None] | None = None,
        done: Callable[[], None] | None = None,
        workers: Callable[[], list[int]] = list,
        queued: Callable[[], int | None] = int,
        settle: Callable[[], float] = float,
    ) -> None:
        self.host = host
        self.program = program
        self.marker = marker
        self.excluded = excluded or {}
        self.progress = progress
        self.done = done
        self.workers = workers
        self.queued = queued
        self.settle = settle
        """wait for the device, and tell for how many seconds: what a block asked for belongs to it"""
        self.ready: int | None = 0
        """batches at the begin of a block; None: workers had made all of the epoch"""
        self.taken = 0.0
        self.contest: Contest | None = None
        self.order: list[str] = []
        self.at = 0
        self.round = -1
        self.skip = 0
        self.wanted = 1
        self.seen: dict[str, tuple[int, float]] = {}
        """steps of each arm before the rounds, and their seconds"""
        self.counted = 0
        self.begun = 0.0
        self.walls: list[float] = []
        self.cpus: list[float] = []
        self.measured: list[tuple[str, float, float]] = []
        self.started = 0.0
        self.open: list[str] = []
        """arms that have more time than others, and until when"""
        self.until = 0.0
        self.worker_cpu: dict[int, int] = {}
        self.over = False

    def on_step(self, step: Step) -> None:
        """A step ended: note it, and run the next as the program wants."""
        if self.over:
            return
        if self.contest is None:
            self._advance(None)
            return
        if self.skip > 0:
            self.skip -= 1
            if self.skip == 0:
                self.settle()
                self.begun, self.worker_cpu = perf_counter(), self._worker_cpu()
                self.ready = self.queued()
            return
        if self._leave_unfit():
            return
        self.taken += step.micro_steps * step.count
        if step.clean:
            self.walls.append(step.wall * step.count / 1e9)
            self.cpus.append(step.cpu * step.count / 1e9)
            self.counted += step.count
        if self.counted < self._wanted() and not self._too_slow():
            return
        if self.counted:
            self._end_block()
        else:
            self._end_round()  # no step tells anything

    def _leave_unfit(self) -> bool:
        """Whether the arm at work turned out to be one that the target does not bear: it is left out, with
        others that have as much in them.
        """
        contest, unfit = self.contest, self.host.unfit
        if not unfit or contest is None:
            return False
        for name, arm in contest.arms.items():
            why = next((unfit[each] for each in unfit if getattr(arm, each)), None)
            if why is not None and name != contest.base:
                contest.failed.setdefault(name, why)
                contest.pairs.pop(name, None)
                self.measured = [each for each in self.measured if each[0] != name]
        if self.order[self.at] not in contest.failed:
            return False
        self.at += 1
        self._begin_block()
        return True

    def cut_short(self) -> Contest | None:
        """The target comes to its end: a contest that is clear by now is over, else it is given back."""
        contest, self.contest = self.contest, None
        if self.over or contest is None:
            return None
        self.over = True
        if not contest.clear:
            return contest
        with contextlib.suppress(StopIteration):
            self.program.send(contest)  # what it wants next never begins
        return None

    def close(self) -> None:
        """Stop: the target is as it was."""
        self.over = True
        self.host.switch(AS_IS)
        self._mark("")

    # --- blocks and rounds ---------------------------------------------------------------------

    def _advance(self, result: Contest | None) -> None:
        try:
            contest = self.program.send(result) if result is not None else next(self.program)
        except StopIteration:
            self.close()
            if self.done is not None:
                self.done()
            return
        self.contest = contest
        if contest is not None:
            for name in list(contest.arms):
                if name in self.excluded and name != contest.base:
                    contest.failed[name] = self.excluded[name]
            self.started = perf_counter() - contest.spent
            self.round, self.open, self.seen = -1, [], {}
            self._begin_round()

    def _begin_round(self) -> None:
        contest = self.contest
        assert contest is not None
        live = self._undecided()
        if self.round % 2:
            live.reverse()
        self.order = []
        for index, name in enumerate(live):
            if index % BASE_AFTER == 0:
                self.order.append(contest.base)
            self.order.append(name)
        self.at = 0
        self.measured = []
        self._begin_block()

    def _begin_block(self) -> None:
        contest = self.contest
        assert contest is not None
        if self.at >= len(self.order) or self._too_slow():
            self._end_round()
            return
        name = self.order[self.at]
        setup = contest.arms[name]
        feeds = setup.feed != self.host.setup.feed
        self.walls, self.cpus, self.counted, self.taken = [], [], 0, 0.0
        self._mark(name)
        self.skip = 2 if feeds else 1
        self.wanted = max(self._length(name), self._length(contest.base))
        self.host.switch(setup)

    def _length(self, name: str) -> int:
        """Steps of an arm that take as long as a block is to: now and then one has more in it than others, as
        an episode that is played, and an arm with fewer steps than the base would seldom meet it.
        """
        steps, seconds = self.seen.get(name, (0, 0.0))
        return max(1, min(MOST_STEPS, round(BLOCK_S * steps / max(seconds, 1e-6))))

    def _wanted(self) -> float:
        """Steps that a block needs."""
        if self.round < 0:
            return FIRST_STEPS if sum(self.walls) < SHORT_S else 1
        long = perf_counter() - self.begun > LONG_S
        return max(1.0, self.wanted / 4) if long else self.wanted

    def _too_slow(self) -> bool:
        assert self.contest is not None
        return perf_counter() - self.started > 3 * self.contest.seconds

    def _end_block(self) -> None:
        name = self.order[self.at]
        left_s = self.settle()
        workers = self._worked_s()
        wall = (sum(self.walls) + left_s) / self.counted
        cpu = (sum(self.cpus) + workers) / self.counted
        self.measured.append((name, wall, cpu))
        left = self.queued()
        if self.round >= 0 and left is not None and self.ready is not None:
            assert self.contest is not None
            spare = self.contest.spare.setdefault(name, Spare())
            spare.taken += self.taken
            spare.before += self.ready - left
        if self.round < 0:
            steps, seconds = self.seen.get(name, (0, 0.0))
            self.seen[name] = steps + self.counted, seconds + wall * self.counted
        self.at += 1
        self._begin_block()

    def _end_round(self) -> None:
        contest = self.contest
        assert contest is not None
        if self.round >= 0 and self.measured:
            self._pair(contest)
        self.round += 1
        contest.spent = perf_counter() - self.started
        if self.progress is not None:
            self.progress(contest)
        late = contest.spent >= contest.seconds
        over = late and (self.round >= FEWEST_ROUNDS or contest.spent >= 2 * contest.seconds)
        if over and not self.open:
            self.open = [name for name in self._undecided() if self._seems_to_pay(name)]
            self.until = contest.spent + MORE * contest.seconds
        if self.open:
            over = contest.spent >= self.until
        if over or not self._undecided() or self.round >= contest.max_rounds:
            self.contest = None
            self.host.switch(AS_IS)
            self._mark("")
            self._advance(contest)
        else:
            self._begin_round()

    def _others(self) -> list[str]:
        """All arms that can be run, but the base."""
        contest = self.contest
        assert contest is not None
        return [
            name for name in contest.arms if name != contest.base and name not in contest.failed
        ]

    def _undecided(self) -> list[str]:
        """Those of them that need more rounds, and have the time."""
        return [name for name in self.open or self._others() if not self._decided(name)]

    def _seems_to_pay(self, name: str) -> bool:
        """Whether an arm is faster, by all that is known, and it is not sure."""
        assert self.contest is not None
        gain = self.contest.gain(name)
        return gain.speedup >= SEEMS and gain.low < SURELY

    def _pair(self, contest: Contest) -> None:
        """Pair each arm's block with one neighbouring block of the base.

        Before it in one round, after it in the next: the mean of both would be steadier than the
        arm's single block, and shift the ratio where noise has a long tail.
        """
        bases = [i for i, (name, _, _) in enumerate(self.measured) if name == contest.base]
        for index, (name, wall, cpu) in enumerate(self.measured):
            if name == contest.base:
                continue
            before = [i for i in bases if i < index][-1:]
            after = [i for i in bases if i > index][:1]
            chosen = (after or before) if self.round % 2 else (before or after)
            _, base_wall, base_cpu = self.measured[chosen[0]]
            contest.pairs.setdefault(name, []).append((base_wall, wall, base_cpu, cpu))

    def _decided(self, name: str) -> bool:
        """Whether an arm needs no more rounds."""
        contest = self.contest
        assert contest is not None
        pairs = contest.pairs.get(name, [])
        if len(pairs) >= contest.most_rounds.get(name, contest.max_rounds):
            return True
        as_large = contest.arms[name].batch_scale == 1.0
        hopeless = as_large and all(base < HOPELESS * arm for base, arm, _, _ in pairs)
        if hopeless and len(pairs) >= FEWEST_ROUNDS:
            return True
        return len(pairs) >= contest.min_rounds and enough(contest.gain(name), contest.narrow)

    def _worker_cpu(self) -> dict[int, int]:
        told = ((pid, cpu_ns(pid)) for pid in self.workers())
        return {pid: spent for pid, spent in told if spent is not None}

    def _worked_s(self) -> float:
        """CPU seconds of workers in a block; NaN where some have ended in it, or begun."""
        before, now = self.worker_cpu, self._worker_cpu()
        if before.keys() != now.keys():
            return math.nan
        return (sum(now.values()) - sum(before.values())) / 1e9

    def _mark(self, name: str) -> None:
        """Leave word of the arm that begins, so that a crash can be laid at its door."""
        if self.marker is not None:
            replace_text(self.marker, json.dumps({"arm": name}))
