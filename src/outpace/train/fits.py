"""Which batches fit in memory: predicted from small ones, then tried in a child process.

The memory of a step is a line over its batch size (`plan.room`) once it is far more than what it takes
whatever the batch, gradients above all: small batches are measured until it is, each four times the one
before, which takes at most four times its memory. What the lines say is then tried in a fork that may
take no more than what is free: what goes wrong in it harms no training.

Limits: a fork computes with one thread, and what kernels take for each further thread it does not see.
Where no fork can compute (on a GPU, or where there is none) a size is tried in place, and only if the
prediction leaves half of the room. So is, anywhere, what is predicted to take less than a quarter of it.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, final

import psutil
import torch

from outpace.measure.capacity import tightest
from outpace.measure.growth import heap_free_bytes
from outpace.measure.memory import StepMemory
from outpace.plan.room import Line, StepLaw
from outpace.seams.batch import batch_size
from outpace.serve.making import bytes_of
from outpace.train import ranks
from outpace.train.twin import Twin, sized

FIRST, GROWTH = 2, 4
"""samples of the smallest batch that is measured, and how many times as many the next one has"""
FIXED = 0.05
"""of what a step takes may come with any batch, where its memory has become a line"""
TAKEN = 0.5
"""of the free memory may be taken to measure it"""
FREE = 0.9
"""of the free memory may be taken: it is in pieces, and not all that kernels take is seen"""
KEPT = 4
"""copies of weights and optimizer that a training keeps: two against divergence, the best, a checkpoint"""
SAFE = 0.25
"""of the room: what is predicted to take less fits even in pieces, and is tried in place"""
UNTRIED = 0.5
"""of the room that is tried in place where no fork can"""
SHARES = (1.0, 0.9, 0.7, 0.5, 0.25, 0.1, 0.03)
"""of what was predicted that is tried, one after the other"""
STEPS = 3
"""that are tried: the first one finds the memory in one piece, those after it what it left"""
FIRST_PATIENCE_S, PATIENCE_S = 10.0, 120.0


class Seen(NamedTuple):
    """Bytes of a step with so many samples, as `StepLaw` has them."""

    samples: int = 0
    lasting: int = 0
    learning: int = 0
    optimizer: int = 0
    data: int = 0

    @property
    def above(self) -> int:
        """What is not there between steps."""
        return self.data + max(self.learning, self.optimizer)


@final
class Fits:
    """Asked for a size, whether it fits a training on all ranks; each that it says yes to was tried.

    ``predicted``: the largest that should fit, at most ``most``. ``patience_s``: that measuring its memory is
    given, and all forks.
    """

    def __init__(self, twin: Twin, batch: Any, most: int, patience_s: float = PATIENCE_S) -> None:
        self.twin, self.batch, self.patience_s = twin, batch, min(patience_s, PATIENCE_S)
        device, self.world = twin.run.device, twin.run.world
        self.law = memory_law(twin, batch, most, self.patience_s)
        kept = 0 if device.type == "cuda" else KEPT * self.law.lasting
        self.room = free_bytes(device) - kept
        # What lasts is there already, of the twin.
        largest = min(most, self.law.largest(self.room + self.law.lasting))
        self.predicted = ranks.least(largest, self.world)
        self.forks = device.type == "cpu" and bool(
            survives(self._steps(FIRST, 1), self.room, min(patience_s, FIRST_PATIENCE_S))
        )
        self.tried = 0
        """the largest that fitted"""
        self.late = False
        """whether a try took longer than there was time"""

    def __call__(self, size: int) -> bool:
        """Whether a batch of so many samples fits."""
        if size > self.tried and ranks.least(self._fits(size), self.world):
            self.tried = size
        return size <= self.tried

    def largest(self, size: int) -> int:
        """The largest part of a size that fits; 0 where none does, or where a try took too long."""
        for part in (int(share * size) for share in SHARES):
            if part > 0 and self(part):
                return part
            self.late = bool(ranks.most(self.late, self.world))
            if self.late:
                break
        return 0

    def _fits(self, size: int) -> bool:
        """On this rank."""
        needed = self.law.peak(size) - self.law.lasting
        if self.forks and needed > SAFE * self.room:
            began = time.monotonic()
            found = survives(self._steps(size, STEPS), self.room, self.patience_s)
            self.patience_s -= time.monotonic() - began
            self.late = self.late or found is None
            return bool(found)
        if needed > UNTRIED * self.room:
            return False
        try:
            self._steps(size, 1)()
        except torch.OutOfMemoryError:
            self.twin.optimizer.zero_grad()
            torch.cuda.empty_cache()
            return False
        return True

    def _steps(self, size: int, count: int) -> Callable[[], None]:
        def act() -> None:
            for _ in range(count):
                self.twin.step(sized(self.batch, size), alone=True)

        return act


def memory_law(twin: Twin, batch: Any, most: int, seconds: float = math.inf) -> StepLaw:
    """The memory of a step over its samples; from here on the twin's optimizer has its state.

    No step is begun that would not be over in ``seconds``, were it as much longer as its batch is larger.
    Raises RuntimeError where it cannot be measured.
    """
    device, size, began = twin.run.device, FIRST, time.monotonic()
    twin.step(sized(batch, size), alone=True)
    last = time.monotonic()
    before, seen = Seen(), measured(twin, sized(batch, size))
    while True:
        now = time.monotonic()
        learning = _through(before.samples, before.learning, seen.samples, seen.learning)
        line = before.samples and abs(learning.fixed) <= FIXED * seen.learning
        late = before.samples and now - began + GROWTH * (now - last) > seconds
        room = GROWTH * seen.above <= TAKEN * free_bytes(device)
        if line or late or GROWTH * size > most or not room:
            break
        size, last = size * GROWTH, now
        before, seen = seen, measured(twin, sized(batch, size))
    return StepLaw(
        seen.lasting,
        learning,
        _through(before.samples, before.optimizer, seen.samples, seen.optimizer),
        Line(0.0, seen.data / seen.samples),
    )


def measured(twin: Twin, batch: Any) -> Seen:
    """One step looked at closely."""
    with StepMemory([twin.module], [twin.optimizer]) as watch:
        twin.step(batch, alone=True)
    if watch.failure is not None:
        raise RuntimeError(f"memory could not be measured: {watch.failure}")
    learning, optimizer = watch.peaks["learning"], watch.peaks["other"]
    return Seen(batch_size(batch), watch.entry_bytes, learning, optimizer, bytes_of(batch))


def _through(few: int, low: int, many: int, high: int) -> Line:
    slope = max(0.0, (high - low) / (many - few))
    return Line(high - slope * many, slope)


def free_bytes(device: torch.device) -> int:
    """Bytes that may be taken on top of what is taken."""
    limit = tightest(device.type)
    free = limit.bytes - limit.used
    if device.type == "cpu":
        free = min(free, psutil.virtual_memory().available)
    return max(0, int(FREE * free))


def survives(act: Callable[[], None], room: int, patience_s: float) -> bool | None:
    """Whether it goes well in a fork that may take so many bytes more; None where it takes too long."""
    if not hasattr(os, "fork"):
        return False
    child = os.fork()
    if child == 0:
        _in_child(act, room)
    status = None
    until = time.monotonic() + patience_s
    try:
        while status is None and time.monotonic() < until:
            ended, code = os.waitpid(child, os.WNOHANG)
            status = code if ended else None
            time.sleep(0.0 if ended else 0.002)
    finally:
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return None if status is None else status == 0


def _in_child(act: Callable[[], None], room: int) -> NoReturn:
    """What it says, or leaves behind where it fails, is nobody's."""
    code = 1
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        torch.set_num_threads(1)  # the other threads of the pool are not in a fork
        limit(room)
        act()
        code = 0
    finally:
        os._exit(code)


def limit(more: int) -> None:
    """Have this process take so many bytes more at most, and be the first that a full machine ends."""
    import resource

    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with contextlib.suppress(OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = max(0, taken - heap_free_bytes() + more)
        if soft != resource.RLIM_INFINITY:
            most = min(most, soft)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
