"""What a plant truly costs: the script with it and without it, in turns."""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cases import Case, kill, output_of

from outpace.measure.statistics import paired_gain

Timed = Callable[[list[str]], list[float]]

SECONDS_OF_A_RUN = 300.0
"""after which it hangs"""
SECONDS = 1.0
"""of steps that are timed in a run, where the plant is in the steps"""
WARM_UP = 10
"""steps"""
ROUNDS_OF_RUNS = 4
LEAST_ROUNDS = 4
NARROW = 0.05
"""half the width of the 95 % interval of the truth's logarithm that is narrow enough"""
TIMER = f"""
import os, runpy, signal, socket, sys, time
import torch
import torch._dynamo
import torch.utils.data

script, seed, ranks = sys.argv[1:]
backward = torch.autograd.backward


class Enough(BaseException):
    pass


def run(amount, tell):
    times = []

    def stepped(*args, **kwargs):
        backward(*args, **kwargs)
        times.append(time.perf_counter())
        enough = len(times) > {WARM_UP} and times[-1] - times[{WARM_UP}] > {SECONDS}
        if (enough or len(times) == {WARM_UP} + 1) and torch.cuda.is_initialized():
            torch.cuda.synchronize()
            times[-1] = time.perf_counter()
        if enough:
            end()

    def end(*args, **kwargs):
        if ranks == "1":
            raise Enough
        # The other ranks go on until they are killed; gloo may hang where its objects go one by one.
        if os.environ["RANK"] == "0":
            tell(times)
            os._exit(0)

    torch.autograd.backward = stepped
    if ranks != "1":
        torch.distributed.destroy_process_group = end
    sys.argv = [script, amount, seed]
    sys.path.insert(0, os.path.dirname(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except Enough:
        pass
    tell(times)


def timed(amount):
    kept = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def tell(times):
        times = times[{WARM_UP}:]
        if os.environ.get("RANK", "0") == "0":
            os.write(kept, f"{{(times[-1] - times[0]) / (len(times) - 1)}}\\n".encode())

    run(amount, tell)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def started(amount, rank, port):
    child = os.fork()
    if child:
        return child
    if ranks != "1":
        own = {{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": ranks}}
        os.environ.update(own, RANK=str(rank), LOCAL_RANK=str(rank))
    timed(amount)
    sys.exit()


for amount in map(str.strip, sys.stdin):
    port = str(free_port())
    children = [started(amount, rank, port) for rank in range(int(ranks))]
    failed = os.waitpid(children[0], 0)[1]
    for other in children[1:]:
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)
    if failed:
        sys.exit(f"{{script}} {{amount}} failed")
"""


@contextlib.contextmanager
def steps_timed(case: Case, seed: int, folder: Path) -> Iterator[Timed]:
    """Seconds of a step on average, for each amount in turn; of ranks, of the first.

    Each run is a fork of one process that has imported torch and done nothing else with it. Steps go
    from backward pass to backward pass: not every script has a torch optimizer. Raises RuntimeError
    where a run fails or hangs.
    """
    timer, errors = folder / "timer.py", folder / "errors.txt"
    timer.write_text(TIMER)
    command = [sys.executable, str(timer), str(case.path), str(seed), str(case.ranks)]
    if case.ranks > 1:
        command = ["env", "OMP_NUM_THREADS=1", *command]  # as torchrun does
    with errors.open("w") as told:
        child = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
    assert child.stdin is not None
    assert child.stdout is not None
    to, of = child.stdin, child.stdout

    def one(amount: str) -> float:
        limit = threading.Timer(SECONDS_OF_A_RUN, kill, [child])
        limit.start()
        try:
            to.write(f"{amount}\n")
            line = of.readline()
        except BrokenPipeError:
            line = ""
        finally:
            limit.cancel()
        if not line:
            raise RuntimeError(f"{case.name} {amount} failed or hung\n{errors.read_text()}")
        return float(line)

    try:
        yield lambda amounts: [one(amount) for amount in amounts]
    finally:
        kill(child)
        child.wait()
        with contextlib.suppress(BrokenPipeError):
            to.close()
        of.close()


@contextlib.contextmanager
def runs_timed(case: Case, seed: int, folder: Path) -> Iterator[Timed]:
    """Seconds of the whole run, for each amount in turn."""

    def one(amount: str) -> float:
        begun = time.perf_counter()
        output_of(case.command(case.path, *case.arguments(amount, seed)), folder)
        return time.perf_counter() - begun

    yield lambda amounts: [one(amount) for amount in amounts]


def time_dose(
    case: Case, amount: str, seed: int, rounds: int, folder: Path
) -> dict[str, list[float]]:
    """Seconds with the plant and with "0" of it; the i-th ones are of one round.

    Two rounds are added until what the plant costs is known to `NARROW`, or there are ``rounds``:
    the width is looked at, never whether anything is lost. Whole runs are dear: `ROUNDS_OF_RUNS` at
    most.
    """
    if case.bound == "outside":
        rounds = min(rounds, ROUNDS_OF_RUNS)
    times: dict[str, list[float]] = {"0": [], amount: []}
    timer = runs_timed if case.bound == "outside" else steps_timed
    with timer(case, seed, folder) as timed:
        while len(times["0"]) < rounds:
            order = ["0", amount, amount, "0"] * (1 if times["0"] else LEAST_ROUNDS // 2)
            for which, seconds in zip(order, timed(order), strict=True):
                times[which].append(seconds)
            gain = paired_gain(times[amount], times["0"])
            if math.log(gain.high / gain.low) <= 2 * NARROW:
                break
    return times
