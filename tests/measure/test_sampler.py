"""The sampler sees lines of pure Python next to calls that let go of the interpreter's lock."""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from tests.conftest import plainly

import outpace
from outpace.measure.sampler import LOADING, look, stack_of

SCRIPT = """
    import hashlib, json, sys, threading, time
    from outpace.measure.sampler import Sampler

    block = bytes(8192)

    def busy(seconds):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            total = sum(value * value for value in range(20_000))
            hashlib.sha256(block)

    interval = sys.getswitchinterval()
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    sampler = Sampler(threading.get_ident(), lambda: "input")
    sampler.start()
    busy(0.3)
    beside = sys.getswitchinterval()
    over.set()
    other.join()
    sampler.counts.clear()
    alone = interval
    for _ in range(60):  # a look now and then is late where the machine is busy, and patient after that
        busy(1.0)
        alone = min(alone, sys.getswitchinterval())
        if sum(sampler.counts.values()) > 100 and alone < interval:
            break
    sampler.end()
    seen = [(line.lines[0][2], count) for line, count in sampler.counts.items()]
    print(json.dumps([interval, beside, alone, sys.getswitchinterval(), seen]))
    """


def test_python_is_seen_beside_calls_that_let_go_of_the_lock(script: Callable[..., Path]) -> None:
    path = script(SCRIPT)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    interval, beside, alone, after, seen = json.loads(done.stdout)
    assert beside == interval, "another thread of the script's is not hastened too"
    assert alone < interval
    assert after == interval
    lines = path.read_text().splitlines()
    python = sum(count for line, count in seen if "value * value" in lines[line - 1])
    assert sum(count for _, count in seen) > 100
    assert python > 0.3 * sum(count for _, count in seen), seen


LONG_CALLS = """
    import json, os, sys, threading, time
    from outpace.measure.sampler import Sampler

    text = json.dumps([{"offset": number, "name": str(number)} for number in range(100_000)])
    sampler = Sampler(threading.get_ident(), lambda: "input")
    sampler.start()
    until, found = time.monotonic() + 4, []
    while time.monotonic() < until:
        json.loads(text)
        found.append(sys.getswitchinterval())
    patient = sum(interval > 0.001 for interval in found) / len(found)
    forked = os.fork()
    if not forked:
        own = Sampler(threading.get_ident(), lambda: "input")
        own.start()
        own.end()
        os._exit(sys.getswitchinterval() != 0.005)
    ended = os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])
    sampler.end()
    print(json.dumps([patient, ended, len(sampler.counts)]))
"""


def test_a_call_that_keeps_the_lock_is_not_asked_for_it_again_and_again(
    script: Callable[..., Path],
) -> None:
    """To read a large file in one call took twice the CPU time, and with all cores busy twice the time."""
    done = subprocess.run(
        [sys.executable, str(script(LONG_CALLS))], capture_output=True, text=True, check=True
    )
    patient, ended, seen = json.loads(done.stdout)
    assert seen
    assert patient > 0.5
    assert ended == 0, (
        "a worker has its own interval, not that of the sampler beside which it was forked"
    )


FORKED = """
    import os, sys, threading
    from outpace.measure.sampler import Sampler

    sampler = Sampler(threading.get_ident(), lambda: "input")
    sampler.start()
    sampler.end()
    sampler.ask_soon(True)
    forked = os.fork()
    if not forked:
        os._exit(sys.getswitchinterval() != 0.005)
    print(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]), sys.getswitchinterval() < 0.005)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_what_a_script_forks_itself_has_the_scripts_interval(script: Callable[..., Path]) -> None:
    """Nobody samples there, and its threads would ask each other for the lock all the time."""
    done = plainly(script(FORKED))
    assert done.stdout.split() == ["0", "True"], done.stderr


BESIDE = """
    import json, sys, threading, time
    from outpace.measure import sampler as module

    over = threading.Event()

    def works():
        while not over.is_set():
            sum(range(1000))

    module.QUIET_S = float(sys.argv[2])
    interval = sys.getswitchinterval()
    other = threading.Thread(target=works if sys.argv[1] == "works" else over.wait)
    other.start()
    sampler = module.Sampler(threading.get_ident(), lambda: "input")
    sampler.start()
    until = time.monotonic() + float(sys.argv[3])
    while time.monotonic() < until and sys.getswitchinterval() == interval:
        sum(range(1000))
    print(json.dumps(sys.getswitchinterval() < interval))
    over.set()
    other.join()
    sampler.end()
    """


@pytest.mark.parametrize(
    ("does", "quiet", "most", "soon"), [("waits", 0.3, 30.0, True), ("works", 0.3, 1.5, False)]
)
def test_a_thread_that_only_waits_is_none_beside(
    does: str, quiet: float, most: float, soon: bool, script: Callable[..., Path]
) -> None:
    command = [sys.executable, str(script(BESIDE)), does, str(quiet), str(most)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) is soon


TORCH = str(Path(torch.__file__).parent)
OTHER = str(Path(torch.__file__).parents[1] / "other.py")
IMPORT = "<frozen importlib._bootstrap>"


def frames_of(frame: Any) -> list[Any]:
    found = []
    while frame is not None:
        found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found


def frame_within(files: list[str]) -> FrameType:
    """The frame of code in the last file, called by that in the one before it, and so on."""
    call = sys._getframe
    for file in reversed(files):

        def calls(inner: Callable[[], FrameType] = call) -> FrameType:
            return inner()

        calls.__code__ = calls.__code__.replace(co_filename=file)
        call = calls
    return call()


@pytest.mark.parametrize(
    ("files", "loads"),
    [
        ([IMPORT, f"{TORCH}/_dynamo/utils.py"], True),
        ([f"{TORCH}/optim/sgd.py", IMPORT, OTHER], True),
        ([IMPORT, OTHER], False),
        ([f"{TORCH}/nn/functional.py"], False),
    ],
)
def test_torch_importing_itself_is_told_apart(files: list[str], loads: bool) -> None:
    line = look(frames_of(frame_within(files)), "startup")
    assert line is not None
    assert line.file == files[-1]
    assert (line.function == LOADING) == loads


@pytest.mark.parametrize(
    ("module", "phase", "counts"),
    [
        ("measure/watch.py", "elsewhere", False),
        ("tune/experiment.py", "optimizer", False),
        ("seams/host.py", "elsewhere", False),
        ("seams/optimizer.py", "optimizer", True),
        ("measure/again.py", "input", True),
    ],
)
def test_our_own_work_is_no_line_of_the_users(module: str, phase: str, counts: bool) -> None:
    """The step of the optimizer waits for it."""
    frames = frames_of(frame_within([str(Path(outpace.__file__).parent / module)]))
    assert (look(frames, phase) is not None) == counts


def test_a_stack_is_of_one_moment() -> None:
    """Two lines in turns, each with a call of its own: a sample never has one's call and the other's line."""
    over = threading.Event()

    def first() -> int:
        return sum(range(300))

    def second() -> int:
        return sum(range(300))

    def alternating() -> None:
        while not over.is_set():
            first()
            second()

    line = alternating.__code__.co_firstlineno
    of = {"first": line + 2, "second": line + 3}
    before = sys.getswitchinterval()
    thread = threading.Thread(target=alternating)
    thread.start()
    sys.setswitchinterval(5e-6)
    seen = 0
    try:
        for _ in range(3000):
            (inner, _), (_, number), *_rest = [*stack_of(thread.ident or 0)[:2], None]
            if inner.co_name in of:
                seen += 1
                assert number == of[inner.co_name]
            time.sleep(1e-4)
    finally:
        sys.setswitchinterval(before)
        over.set()
        thread.join()
    assert seen > 100


WAY_BACK = """
for number in iter(over.is_set, True):
    for x in (1, 2):
        x += 1
        if x > 5:
            print(x)
            print(number)
"""


def test_a_loops_way_back_is_no_line() -> None:
    """Python hands the lock over there, and gives it no number where it follows more than one line."""
    over, code = threading.Event(), compile(WAY_BACK, "<a script>", "exec")
    if None not in {line for _, _, line in code.co_lines()}:
        pytest.skip("this version of Python gives it one")
    thread = threading.Thread(target=exec, args=(code, {"over": over}))
    thread.start()
    try:
        stacks = [stack_of(thread.ident or 0, 1e-4) for _ in range(400)]
    finally:
        over.set()
        thread.join()
    lines = [line for stack in stacks for of, line in stack if of is code]
    assert len(lines) > 200
    assert all(isinstance(line, int) for line in lines)
    assert 0 in lines


def test_what_is_between_two_lines_is_no_sample() -> None:
    code = compile("pass", str(Path(__file__)), "exec")
    assert look([(code, 3)], "elsewhere") is not None
    assert look([(code, 0)], "elsewhere") is None


@pytest.mark.parametrize("deeper", [0, 12])
def test_a_line_that_holds_the_interpreters_lock_is_seen_itself(deeper: int) -> None:
    """Of a stack of few frames the line after it was seen in its place: reading took several calls."""
    over = threading.Event()
    many = list(range(300_000))

    def counting() -> int:
        count = 0
        for index in range(20_000):
            count += index
        return count

    def working(depth: int) -> None:
        if depth:
            working(depth - 1)
        while not over.is_set():
            sum(many)  # some milliseconds, all of them in C
            counting()

    before = sys.getswitchinterval()
    thread = threading.Thread(target=working, args=(deeper,))
    thread.start()
    sys.setswitchinterval(5e-6)
    try:
        stacks = [stack_of(thread.ident or 0, random.uniform(0.001, 0.01)) for _ in range(100)]
    finally:
        sys.setswitchinterval(before)
        over.set()
        thread.join()
    line = working.__code__.co_firstlineno + 4
    seen = [stack[0][1] == line for stack in stacks if stack[0][0] is working.__code__]
    assert sum(seen) > 50
    assert all(len(stack) > deeper for stack in stacks)


class Held:
    """Something that a function has in hand."""


def test_what_a_function_has_in_hand_ends_with_it() -> None:
    """A frame that was looked at, and kept, would keep it; only a full collection would tell."""
    own, looked, over = threading.get_ident(), threading.Event(), threading.Event()

    def look_on() -> None:
        stack_of(own)
        looked.set()
        over.wait(10)

    def work() -> weakref.ref[Held]:
        held = Held()
        assert looked.wait(10)
        return weakref.ref(held)

    gc.disable()
    try:
        threading.Thread(target=look_on).start()
        assert work()() is None
    finally:
        over.set()
        gc.enable()


AHEAD = """
    import queue, threading, time
    from outpace.measure.sampler import Sampler

    def look_after():
        while True:
            time.sleep(5)  # between two looks at the machine

    def read():
        time.sleep(0.01)  # makes a batch
        return 1

    def make():
        while True:
            batches.put(read())

    batches = queue.Queue(1)
    threading.Thread(target=look_after, daemon=True).start()
    threading.Thread(target=make, daemon=True).start()
    sampler = Sampler(threading.get_ident(), lambda: "elsewhere")
    sampler.start()
    while sum(sampler.counts.values()) < 20:
        batches.get()  # waits for it
    sampler.end()
    for line, count in sampler.counts.items():
        print(count, *(number for _, _, number in line.lines))
    """


def test_a_thread_that_is_waited_for_is_looked_at(script: Callable[..., Path]) -> None:
    path = script(AHEAD)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    text = path.read_text().splitlines()
    makes, waits = (next(n for n, t in enumerate(text, 1) if w in t) for w in ("makes", "waits"))
    seen = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    found = sum(count for count, *lines in seen if lines[0] == makes and lines[-1] == waits)
    assert found > 0.5 * sum(count for count, *_ in seen), seen


JOINS = """
    import threading, time
    from pathlib import Path
    from outpace.measure.sampler import Sampler

    sampler = Sampler(threading.get_ident(), lambda: "elsewhere", Path("dump.json"))
    sampler.end()  # one that was not begun
    sampler = Sampler(threading.get_ident(), lambda: "elsewhere", Path("dump.json"))
    sampler.start()
    until = time.monotonic() + 60
    while not Path("dump.json").exists() and time.monotonic() < until:
        time.sleep(0.01)
    sampler.paused = True
    time.sleep(0.1)
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join()
    sampler.end()
    print(sampler.ended.is_set(), sum(sampler.counts.values()) > 0)
    """


def test_a_script_may_wait_for_all_threads_that_it_knows(script: Callable[..., Path]) -> None:
    done = plainly(script(JOINS))
    assert done.stdout.split() == ["True", "True"], done.stderr
