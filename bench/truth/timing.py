"""What a plant truly costs: the script with it and without it, in turns."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from cases import Case

SECONDS = 2.5
"""of steps that are timed in a run, where the plant is in the steps"""
WARM_UP = 10
"""steps"""
TIMER = f"""
import json, os, runpy, sys, time
import torch
import torch._dynamo

script, *amounts = sys.argv[1:]
kept = os.dup(1)
backward = torch.autograd.backward


class Enough(BaseException):
    pass


def run(amount):
    times = []

    def stepped(*args, **kwargs):
        backward(*args, **kwargs)
        times.append(time.perf_counter())
        enough = len(times) > {WARM_UP} and times[-1] - times[{WARM_UP}] > {SECONDS}
        if (enough or len(times) == {WARM_UP} + 1) and torch.cuda.is_initialized():
            torch.cuda.synchronize()
            times[-1] = time.perf_counter()
        if enough:
            raise Enough

    torch.autograd.backward = stepped
    sys.argv = [script, amount]
    sys.path.insert(0, os.path.dirname(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except Enough:
        pass
    return times[{WARM_UP}:]


for amount in amounts:
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        times = run(amount)
        os.write(kept, f"{{(times[-1] - times[0]) / (len(times) - 1)}}\\n".encode())
        sys.exit()
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{{script}} {{amount}} failed")
"""


def step_times(case: Case, amounts: list[str], folder: Path) -> list[float]:
    """Seconds of a step on average, for each amount in turn.

    Each run is a fork of one process that has imported torch and done nothing else with it. Steps
    go from backward pass to backward pass: not every script has a torch optimizer.
    """
    timer = folder / "timer.py"
    timer.write_text(TIMER)
    command = [sys.executable, str(timer), str(case.path), *amounts]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{case.name}: {done.stderr}")
    return [float(line) for line in done.stdout.split()]


def run_times(case: Case, amounts: list[str], folder: Path) -> list[float]:
    """Seconds of the whole run, for each amount in turn."""
    found = []
    for amount in amounts:
        begun = time.perf_counter()
        command = [sys.executable, str(case.path), amount]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        found.append(time.perf_counter() - begun)
    return found


def time_dose(case: Case, amount: str, rounds: int, folder: Path) -> dict[str, list[float]]:
    """Seconds with the plant and with "0" of it; the i-th ones are of one round."""
    order = [a for i in range(rounds) for a in (("0", amount) if i % 2 == 0 else (amount, "0"))]
    times = (run_times if case.bound == "outside" else step_times)(case, order, folder)
    return {
        which: [seconds for at, seconds in zip(order, times, strict=True) if at == which]
        for which in ("0", amount)
    }
