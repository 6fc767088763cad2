"""What a plant truly costs: the script with it and without it, in turns."""

from __future__ import annotations

import math
import time
from pathlib import Path

from cases import Case, output_of

from outpace.measure.statistics import paired_gain

SECONDS = 1.0
"""of steps that are timed in a run, where the plant is in the steps"""
WARM_UP = 10
"""steps"""
ROUNDS_OF_RUNS = 6
LEAST_ROUNDS = 4
NARROW = 0.05
"""half the width of the 95 % interval of the truth's logarithm that is narrow enough"""
TIMER = f"""
import json, os, runpy, sys, time
import torch
import torch._dynamo

script, seed, *amounts = sys.argv[1:]
kept = os.dup(1)
backward = torch.autograd.backward


class Enough(BaseException):
    pass


seen = []


def run(amount):
    times = seen

    def stepped(*args, **kwargs):
        backward(*args, **kwargs)
        times.append(time.perf_counter())
        # A rank that leaves early would hold up the others.
        alone = "RANK" not in os.environ
        enough = alone and len(times) > {WARM_UP} and times[-1] - times[{WARM_UP}] > {SECONDS}
        if (enough or len(times) == {WARM_UP} + 1) and torch.cuda.is_initialized():
            torch.cuda.synchronize()
            times[-1] = time.perf_counter()
        if enough:
            raise Enough

    torch.autograd.backward = stepped
    sys.argv = [script, amount, seed]
    sys.path.insert(0, os.path.dirname(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except Enough:
        pass
    return times[{WARM_UP}:]


def tell(times):
    os.write(kept, f"{{(times[-1] - times[0]) / (len(times) - 1)}}\\n".encode())


def timed(amount):
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    tell(run(amount))


if "RANK" in os.environ:
    # Ends at the script's last line: gloo now and then hangs where its objects go one by one.
    def end(*args, **kwargs):
        if os.environ["RANK"] == "0":
            tell(seen[{WARM_UP}:])
        os._exit(0)

    torch.distributed.destroy_process_group = end
    run(amounts.pop())
for amount in amounts:
    child = os.fork()
    if not child:
        timed(amount)
        sys.exit()
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{{script}} {{amount}} failed")
"""


def step_times(case: Case, amounts: list[str], seed: int, folder: Path) -> list[float]:
    """Seconds of a step on average, for each amount in turn.

    Each run is a fork of one process that has imported torch and done nothing else with it; ranks
    are started anew. Steps go from backward pass to backward pass: not every script has a torch
    optimizer.
    """
    timer = folder / "timer.py"
    timer.write_text(TIMER)
    found = []
    for some in [amounts] if case.ranks == 1 else [[amount] for amount in amounts]:
        command = case.command(timer, str(case.path), str(seed), *some)
        found += [float(line) for line in output_of(command, folder).split()]
    return found


def run_times(case: Case, amounts: list[str], seed: int, folder: Path) -> list[float]:
    """Seconds of the whole run, for each amount in turn."""
    found = []
    for amount in amounts:
        command = case.command(case.path, *case.arguments(amount, seed))
        begun = time.perf_counter()
        output_of(command, folder)
        found.append(time.perf_counter() - begun)
    return found


def time_dose(
    case: Case, amount: str, seed: int, rounds: int, folder: Path
) -> dict[str, list[float]]:
    """Seconds with the plant and with "0" of it; the i-th ones are of one round.

    Two rounds are added until what the plant costs is known to `NARROW`, or there are ``rounds``:
    the width is looked at, never whether anything is lost. Whole runs, and ranks that are started
    anew, are dear: `ROUNDS_OF_RUNS` at most.
    """
    if case.bound == "outside" or case.ranks > 1:
        rounds = min(rounds, ROUNDS_OF_RUNS)
    times: dict[str, list[float]] = {"0": [], amount: []}
    timed = run_times if case.bound == "outside" else step_times
    while len(times["0"]) < rounds:
        order = ["0", amount, amount, "0"] * (1 if times["0"] else LEAST_ROUNDS // 2)
        for which, seconds in zip(order, timed(case, order, seed, folder), strict=True):
            times[which].append(seconds)
        gain = paired_gain(times[amount], times["0"])
        if math.log(gain.high / gain.low) <= 2 * NARROW:
            break
    return times
