"""What it costs to start one worker process that uses torch, by start method.

A forked worker finds torch there, as its parent has imported it; any other imports it anew. So a
child process of its own imports torch and starts workers (`python -m outpace.measure.starts`
prints what it found as JSON): some seconds in all, most of them for importing torch.

Honest limits: a spawned worker also runs the script's own imports and is sent the data set, which
comes on top; a forked one of a process with much memory takes longer, as its page tables are copied.
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.connection import Connection
from time import perf_counter

import msgspec

from outpace.measure.doctor import Start
from outpace.measure.in_child import in_child
from outpace.measure.workers import private_bytes
from outpace.seams.start_method import start_method

ROUNDS = 3
ENOUGH_S = 1.0
"""A method that took so long is not tried again."""
PATIENCE_S = 60.0


def starts() -> dict[str, Start]:
    """Cost of a worker by start method, measured in a child; empty where that cannot be."""
    kind = dict[str, Start]
    return in_child("outpace.measure.starts", kind, patience_s=PATIENCE_S) or {}


def cost(method: str) -> Start:
    """The cheapest of a few starts from this process."""
    tried: list[Start] = []
    begun = perf_counter()
    while not tried or (len(tried) < ROUNDS and perf_counter() - begun < ENOUGH_S):
        tried.append(_once(method))
    return min(tried, key=lambda start: start.seconds)


def _once(method: str) -> Start:
    context = multiprocessing.get_context(method)
    ours, its = context.Pipe()
    worker = context.Process(target=answer, args=(its,), daemon=True)  # type: ignore[attr-defined]
    begun = perf_counter()
    worker.start()
    its.close()  # so that a worker which dies is told by the end of the pipe
    ours.recv()
    seconds = perf_counter() - begun
    own = private_bytes(worker.pid)
    ours.send("end")
    worker.join()
    return Start(seconds, own)


def answer(pipe: Connection) -> None:
    """A worker: it answers once torch is there, and ends when it is told to."""
    import torch

    pipe.send(torch.__name__)
    pipe.recv()


def main() -> None:
    """Print what starts cost; torch is imported first, as in a process that trains."""
    import torch  # noqa: F401

    there = multiprocessing.get_all_start_methods()
    methods = dict.fromkeys([start_method(), "fork", "spawn"])
    found = {method: cost(method) for method in methods if method in there}
    sys.stdout.write(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main()
