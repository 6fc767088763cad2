"""What a plant truly costs: the script with it and without it, in turns."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from cases import Case

SECONDS = 3.0
"""of steps that are timed in a run, where the plant is in the steps"""
WARM_UP = 10
"""steps"""
TIMER = f"""
import atexit, json, runpy, sys, time
import torch

out, whole, script, *args = sys.argv[1:]
times, backward = [], torch.autograd.backward

def stepped(*args, **kwargs):
    backward(*args, **kwargs)
    times.append(time.perf_counter())
    if whole == "0" and len(times) > {WARM_UP} and times[-1] - times[{WARM_UP}] > {SECONDS}:
        sys.exit()

torch.autograd.backward = stepped
sys.argv = [script, *args]
atexit.register(lambda: json.dump(times, open(out, "w")))
runpy.run_path(script, run_name="__main__")
"""


def timed(case: Case, amount: str, folder: Path) -> float:
    """Seconds of a step on average; of the whole run, where the plant is not in the steps.

    Steps go from backward pass to backward pass: not every script has a torch optimizer.
    """
    timer, out = folder / "timer.py", folder / "times.json"
    timer.write_text(TIMER)
    whole = case.bound == "outside"
    command = [sys.executable, str(timer), str(out), str(int(whole)), str(case.path), amount]
    begun = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    if whole:
        return time.perf_counter() - begun
    times = json.loads(out.read_text())[WARM_UP:]
    return float(times[-1] - times[0]) / (len(times) - 1)


def time_doses(case: Case, rounds: int, folder: Path) -> dict[str, list[float]]:
    """Seconds by amount of the plant, "0" among them; the i-th ones are of one round."""
    amounts = ("0", *case.amounts)
    found: dict[str, list[float]] = {amount: [] for amount in amounts}
    for index in range(rounds):
        for amount in amounts if index % 2 == 0 else reversed(amounts):
            found[amount].append(timed(case, amount, folder))
    return found
