"""A stack sampler: which of the user's lines the time goes to that no seam explains.

A thread looks at the training thread's stack some fifty times a second, and where that one waits for
another thread, as for one that makes batches ahead, at what this does. It hooks nothing, so that it
costs the target next to nothing; it sees a C function as the line that called it. In DataLoader
workers one such thread a process writes what it saw to a file.

To look it needs the interpreter's lock. Python hands it over after 5 ms, or sooner where a C function
lets go of it: a line of 0.1 ms in pure Python, next to one that makes a tensor, would never be seen.
So the lock is asked for after 5 us, while no other thread of Python's would be hastened too. Then the
training asks for it back as soon: so a stack is read in one call of C, in which Python hands nothing over.
Where a C function keeps the lock for long, as one that reads a large file of JSON does, to ask every 5 us
keeps a core busy: after such a look there is none for a while. To look patiently then would not do: lines
that hand the lock over by themselves would be seen in the place of others.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import functools
import json
import linecache
import math
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import repeat, tee
from operator import itemgetter
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from outpace.records.files import replace_text
from outpace.seams.phases import Phases
from outpace.seams.where import is_user_file, short

INTERVAL_S = 0.02
DUMP_EVERY_S = 1.0
WORKER = "worker-{loader}-{pid}.json"
"""the file of a process that makes a loader's batches"""
SOON_S = 5e-6
AT_ONCE = 8
"""frames, the innermost, that are read in one moment"""
TORCH = os.sep + "torch" + os.sep
LOADING = "<torch imports more of itself>"
"""stands for the innermost function then"""
SET_TIMER_SLACK = 29
"""prctl(2): how late this thread may be woken, in ns; 50 us unless it asks"""
MOST_WAIT_S = 1.0
"""for a sampler that was told to end; it takes milliseconds"""
SPUN_S, MOST_SPUN, MOST_REST_S = 5e-3, 0.2, 1.0
"""CPU seconds of a look that has asked again and again, what asking may take of a core at the most, and for
how long there is no other look at the most"""
LOOK_EVERY_S, QUIET_S = 0.1, 2.0
"""how often other threads are looked at, and for how long none of them works before this one is alone"""
_PACKAGE = Path(__file__).parents[1]
MEASURING = tuple(
    str(_PACKAGE / part) for part in (f"measure{os.sep}", f"tune{os.sep}", "seams/host.py")
)
"""our own work between two steps; under the other seams calls of the target's run, and its data sets are
drawn from"""
WAITING = tuple(f"{os.sep}{name}.py" for name in ("threading", "queue", "selectors", "subprocess"))
"""files of the innermost function of a thread that waits for another one, or for a program"""


class Line(NamedTuple):
    """What a sample saw: the seams' phase, the innermost function, and the user's lines outwards."""

    phase: str
    file: str
    function: str
    lines: tuple[tuple[str, str, int], ...]
    """(file, function, line) of the user's frames, the innermost first"""


class Sampler:
    """Counts where the thread ``target`` is, in a thread that `threading` does not know: a script may wait
    for the end of all that it knows.
    """

    own_interval = 0.005
    """as the script has it"""

    def __init__(self, target: int, phase: Callable[[], str], dump: Path | None = None) -> None:
        self.target = target
        self.phase = phase
        self.dump = dump
        self.counts: Counter[Line] = Counter()
        self.since: Counter[Line] = Counter()
        """of these, what was seen since the last step ended"""
        self.paused = False
        self.told_to_end, self.ended = threading.Event(), threading.Event()
        self.ended.set()
        self.jitter = random.Random(0)
        self.looked = self.beside = time.monotonic()
        """when other threads were looked at, and when one of them worked"""

    def start(self) -> None:
        """Sample from here on."""
        _put_back_in_children()
        self.ended.clear()
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        try:
            self._sample()
        finally:
            self.ended.set()

    def _sample(self) -> None:
        last, begins = time.monotonic(), True  # patiently, as a process often does with a long call
        with contextlib.suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).prctl(SET_TIMER_SLACK, 1, 0, 0, 0)
        while not self.told_to_end.is_set():
            self.ask_soon(not (self.paused or begins) and self.is_alone())
            after_s = INTERVAL_S * (0.5 + self.jitter.random())
            if self.paused:
                self.told_to_end.wait(after_s)
                continue
            cpu = time.thread_time()
            stack = stack_of(self.target, after_s)
            spun_s, begins = time.thread_time() - cpu, False
            if stack and waits(stack):
                stack = self.waited_for() + stack
            line = look(stack, self.phase()) if stack else None
            if line is not None and not self.paused:
                self.counts[line] += 1
                self.since[line] += 1
            if self.dump is not None and time.monotonic() - last > DUMP_EVERY_S:
                last = time.monotonic()
                self.write()
            if spun_s > SPUN_S:
                self.ask_soon(False)
                self.told_to_end.wait(min(MOST_REST_S, spun_s / MOST_SPUN))
        self.ask_soon(False)

    def is_alone(self) -> bool:
        """Whether no thread of Python's works but one: libraries have some that only wait."""
        if threading.active_count() <= 1:
            return True
        now = time.monotonic()
        if now - self.looked > LOOK_EVERY_S:
            self.looked = now
            stacks = [stack_of(each.ident or 0) for each in self.others()]
            if not all(waits(stack) for stack in stacks if stack):
                self.beside = now
        return now - self.beside > QUIET_S

    def others(self) -> list[threading.Thread]:
        """The threads that `threading` knows, but the one that is looked at; ours is none of them."""
        return [each for each in threading.enumerate() if each.ident not in (None, self.target)]

    def waited_for(self) -> list[tuple[CodeType, int]]:
        """The stack of a thread of the user's that works while the training waits; none where none does."""
        for thread in self.others():
            stack = stack_of(thread.ident or 0)
            if stack and not waits(stack) and not ticks(stack):
                return stack
        return []

    @staticmethod
    def ask_soon(wanted: bool) -> None:
        """Have threads ask for the interpreter's lock soon, or as the script has it."""
        now = sys.getswitchinterval()
        is_soon = math.isclose(now, SOON_S)
        if not is_soon:
            Sampler.own_interval = now
        if wanted != is_soon:
            sys.setswitchinterval(SOON_S if wanted else Sampler.own_interval)

    def end(self) -> None:
        """Stop sampling: the counts stay as they are, and no thread is left for the interpreter's end."""
        self.told_to_end.set()
        self.ended.wait(MOST_WAIT_S)

    def write(self) -> None:
        """Write the counts for another process to read."""
        if self.dump is None:
            return
        rows = [[*line[:3], line.lines, count] for line, count in self.counts.items()]
        try:
            replace_text(self.dump, json.dumps(rows))
        except OSError:
            self.dump = None


@functools.cache
def _put_back_in_children() -> None:
    """What the script forks has no sampler to do so: threads there ask for the lock as the script has it."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: Sampler.ask_soon(False))


def stack_of(thread: int, after_s: float = 0.0) -> list[tuple[CodeType, int]]:
    """Code and line of a thread's frames so many seconds from now; none if it has ended.

    Line 0 is between two: a loop's way back to its beginning belongs to none.

    The innermost first; all of one moment, but for those beyond the first eight.
    """
    try:
        # No name for it: it holds all threads' frames, and what their functions have in hand. So it is
        # gone before the thread goes on, and in no cycle with this frame.
        *read, walk = next(_looks(thread, after_s))
    except KeyError:
        return []
    pairs = zip(read[::2], read[1::2], strict=True)
    stack = [(code, line or 0) for code, line in pairs if code is not None]
    while walk is not None:
        stack.append((walk.f_code, walk.f_lineno or 0))
        walk = walk.f_back
    return stack


def _looks(thread: int, after_s: float) -> Iterator[tuple[Any, ...]]:
    """Gives one: code and line of so many frames, the innermost first, and the frame after them.

    In one call, the waiting too: whatever Python runs in between, the thread goes on by. A line that
    holds the interpreter's lock for long is seen only so, and not the one after it in its place.
    """
    moments = zip(map(time.sleep, (after_s,)), iter(sys._current_frames, None), strict=False)
    frame: Iterator[Any] = map(itemgetter(thread), map(itemgetter(1), moments))
    columns: list[Iterator[Any]] = []
    for _ in range(AT_ONCE):
        code, line, around = tee(frame, 3)
        columns += [_attribute(code, "f_code"), _attribute(line, "f_lineno")]
        frame = _attribute(around, "f_back")
    return zip(*columns, frame, strict=False)


def _attribute(each: Iterator[Any], name: str) -> Iterator[Any]:
    """An attribute of each; None where there is none, as of the frame around the outermost one."""
    return map(getattr, each, repeat(name), repeat(None))


def waits(stack: list[tuple[CodeType, int]]) -> bool:
    """Whether a thread waits for another, as at a queue."""
    return stack[0][0].co_filename.endswith(WAITING)


def ticks(stack: list[tuple[CodeType, int]]) -> bool:
    """Whether a thread does nothing of the user's, or only sleeps between what it does now and then."""
    users = [(code.co_filename, line) for code, line in stack if is_user_file(code.co_filename)]
    return not users or (len(users) == 1 and "sleep(" in linecache.getline(*users[0]))


def look(stack: list[tuple[CodeType, int]], phase: str) -> Line | None:
    """One sample out of a stack; None between two lines of the user's, or where one only waits for us."""
    innermost = stack[0][0]
    lines = []
    importing = torch = False
    for code, number in stack:
        name = code.co_filename
        if is_user_file(name):
            if not number:
                return None
            lines.append((name, code.co_name, number))
        elif not lines:
            if phase != "input" and name.startswith(MEASURING):
                return None
            importing |= name.startswith("<frozen importlib")
            torch |= TORCH in name
    function = LOADING if importing and torch else innermost.co_name
    return Line(phase, innermost.co_filename, function, tuple(lines))


def of_phase(samples: Counter[Line], phase: str) -> Counter[Line]:
    """Those that were taken in a phase."""
    return Counter({line: count for line, count in samples.items() if line.phase == phase})


def loading_share(samples: Counter[Line]) -> float:
    """Share of start-up, seen by samples, in which torch imports more of itself."""
    seen = of_phase(samples, "startup")
    loading = sum(count for line, count in seen.items() if line.function == LOADING)
    return loading / seen.total() if seen else 0.0


def read_dump(path: Path) -> Counter[Line]:
    """The counts that a worker wrote; none if it is gone or cut short."""
    counts: Counter[Line] = Counter()
    try:
        for phase, file, function, lines, count in json.loads(path.read_text()):
            counts[Line(phase, file, function, tuple((f, n, i) for f, n, i in lines))] += count
    except (OSError, ValueError):
        pass
    return counts


def phase_reader(phases: Phases, mode: Callable[[], str]) -> Callable[[], str]:
    """A function that names the running phase, or what the script is at where none runs."""

    def read() -> str:
        if phases.resting:
            return "resting"
        stack = phases.stack
        at = mode()
        if at != "train":
            return at if at == "startup" else "validation"
        return stack[-1] if stack else phases.idle

    return read


def place_of(line: Line) -> str | None:
    """``file:line`` of the user's innermost line."""
    if not line.lines:
        return None
    file, _, number = line.lines[0]
    return f"{short(file)}:{number}"
