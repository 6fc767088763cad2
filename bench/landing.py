"""Landing on time, and what it is worth: `outpace run --deadline T --land` on the examples.

    python bench/landing.py [--deadlines 20,40,60,90,120] [--only mnist_cnn.py] [--hog] [--quality SEEDS]

Each example, made far too long, is given each deadline; in the second and the fourth a CPU's worth of
slowness is put upon it half-way (it is stopped every other 50 ms; with --hog as many programs as there
are cores keep these busy instead). Printed: when it ended as a share of the deadline, the learning rate
that was left, and whether the script's own last save is there.

With --quality the landed run is compared with the script as it is, cut off after as many steps, at
half of the script's own time: the loss on its validation data, over so many seeds.
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import torch

from paired import EXAMPLES, ROOT

LONG = {
    "image_classifier.py": ["--epochs", "10000"],
    "char_gpt.py": ["--steps", "1000000"],
    "flights.py": ["--epochs", "10000"],
    "mnist_cnn.py": ["--epochs", "10000"],
}
LENGTHS = {"char_gpt.py": ("--steps", 300), "mnist_cnn.py": ("--epochs", 5)}
"""the option that says how long a script trains, and its default"""
TICK_S = 0.05


class Landed(NamedTuple):
    """How one run ended. ``used``: share of the deadline; ``rate``: per cent of the largest."""

    used: float
    rate: float | None
    steps: int | None
    saved: bool
    code: int

    @property
    def landed(self) -> bool:
        """Whether it ended in time and not before, its rate taken down and its last save done."""
        annealed = self.rate is not None and self.rate < 2
        return 0.97 <= self.used <= 1.0 and annealed and self.saved


def main() -> None:
    """Run them and print a row each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deadlines", default="20,40,60,90,120")
    parser.add_argument("--only", choices=EXAMPLES)
    parser.add_argument("--hog", action="store_true", help="slowed by programs that compute")
    parser.add_argument("--quality", type=int, metavar="SEEDS")
    parser.add_argument("--schedule", default="plateau")
    options = parser.parse_args()
    names = [name for name in EXAMPLES if options.only in (None, name)]
    if options.quality:
        for name in names:
            if name in LENGTHS:
                quality(name, options.quality, options.schedule)
        return
    landed = 0
    deadlines = [float(word) for word in options.deadlines.split(",")]
    slowing = crowd if options.hog else slow_down
    print("script               deadline  slowed  ended at  rate left  steps  saved")
    for name in names:
        for index, deadline in enumerate(deadlines):
            slowed = index % 2 == 1
            run = land(name, LONG[name], deadline, slowing=slowing if slowed else None)
            good = run.landed
            landed += good
            print(
                f"{name:<20} {deadline:>6.0f} s  {('hog' if options.hog else '2x') if slowed else '-':<6} "
                f"{100 * run.used:>7.1f} %  {run.rate!s:>7} %  {run.steps!s:>5}  "
                f"{'yes' if run.saved else 'no'}{'' if good else '   <-- missed'}",
                flush=True,
            )
    print(f"{landed} of {len(names) * len(deadlines)} ended at 97-100 % with less than 2 % left")


def land(
    name: str,
    args: list[str],
    deadline: float,
    *,
    slowing: Callable[[int, float, threading.Event], None] | None = None,
    out: Path | None = None,
    schedule: str = "plateau",
) -> Landed:
    """One run that is to land."""
    with tempfile.TemporaryDirectory() as folder:
        saved = out or Path(folder) / "model.pt"
        command = [sys.executable, "-m", "outpace", "run", "--deadline", f"{deadline}s",
                   "--schedule", schedule, "--quiet", str(ROOT / "examples" / name), *args,
                   "--out", str(saved)]  # fmt: skip
        begun = time.perf_counter()
        child = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        over = threading.Event()
        brake = threading.Thread(target=slowing, args=(child.pid, deadline / 2, over))
        if slowing:
            brake.start()
        try:
            _, told = child.communicate()
            used = (time.perf_counter() - begun) / deadline
        finally:
            over.set()
        if slowing:
            brake.join()
        rate = re.search(r"rate at ([\d.]+) %", told)
        steps = re.search(r"after (\d+) steps", told)
        if child.returncode not in (0, 3):
            sys.exit(told)
        return Landed(
            used,
            float(rate[1]) if rate else None,
            int(steps[1]) if steps else None,
            readable(saved),
            child.returncode,
        )


def slow_down(parent: int, after_s: float, over: threading.Event) -> None:
    """From then on let the script run but half of the time."""
    over.wait(after_s)
    children = [child.pid for child in psutil.Process(parent).children()]
    while children and not over.is_set():
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for child in children:
                try:
                    os.kill(child, number)
                except ProcessLookupError:
                    return
            over.wait(TICK_S)


def crowd(parent: int, after_s: float, over: threading.Event) -> None:
    """From then on have other programs on all cores."""
    over.wait(after_s)
    busy = [sys.executable, "-c", "while True: pass"]
    hogs = [subprocess.Popen(busy) for _ in range(0 if over.is_set() else os.cpu_count() or 1)]
    over.wait()
    for hog in hogs:
        hog.kill()
        hog.wait()


def readable(path: Path) -> bool:
    """Whether the script's own last save is there and whole."""
    return path.exists() and bool(torch.load(path, weights_only=True))


def quality(name: str, seeds: int, schedule: str) -> None:
    """The landed run against the script as it is, at half of its time."""
    option, length = LENGTHS[name]
    landed, cut = [], []
    script = ROOT / "examples" / name
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "model.pt"
        begun = time.perf_counter()
        plainly(script, ["--out", str(out)], folder)
        half = (time.perf_counter() - begun) / 2
        for seed in range(seeds):
            run = land(name, ["--seed", str(seed)], half, out=out, schedule=schedule)
            landed.append(validation_loss(name, out, seed))
            # As it is, cut off: in as many steps as the landed one had time for.
            stop_after(
                script, run.steps or 0, ["--seed", str(seed), option, str(length)], folder, out
            )
            cut.append(validation_loss(name, out, seed))
            print(f"{name} seed {seed}: landed {landed[-1]:.4f}, cut off {cut[-1]:.4f} after "
                  f"{run.steps} steps", flush=True)  # fmt: skip
    better = sum(a < b for a, b in zip(landed, cut, strict=True))
    print(f"{name}, {schedule}, at {half:.0f} s, half of its time: median loss landed "
          f"{statistics.median(landed):.4f}, cut off {statistics.median(cut):.4f}; better in "
          f"{better} of {seeds}")  # fmt: skip


def plainly(script: Path, args: list[str], folder: str) -> None:
    """``python script args``."""
    subprocess.run(
        [sys.executable, str(script), *args], cwd=folder, stdout=subprocess.DEVNULL, check=True
    )


CUT = """
import runpy, sys
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

steps, out, script, *args = sys.argv[1:]
left, models = [int(steps)], []
made = torch.nn.Module.__init__

def init(module, *args, **kwargs):
    made(module, *args, **kwargs)
    models.append(module)

torch.nn.Module.__init__ = init

def stepped(*_):
    left[0] -= 1
    if left[0] == 0:
        torch.save(models[0].state_dict(), out)
        sys.exit()

register_optimizer_step_post_hook(stepped)
sys.argv = [script, *args]
runpy.run_path(script, run_name="__main__")
"""


def stop_after(script: Path, steps: int, args: list[str], folder: str, out: Path) -> None:
    """The script as it is, stopped after so many steps, its model saved as it then is."""
    command = [sys.executable, "-c", CUT, str(steps), str(out), str(script), *args]
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)


def validation_loss(name: str, saved: Path, seed: int) -> float:
    """The mean loss of a saved model on its script's validation data."""
    script = runpy.run_path(str(ROOT / "examples" / name))
    weights = torch.load(saved, weights_only=True)
    if name == "char_gpt.py":
        model = script["GPT"](context=128)
        model.load_state_dict(weights)
        torch.manual_seed(seed)
        path = ROOT / "examples" / "data" / "text" / "val.bin"
        return float(script["evaluate"](model, path, 16, 128, batches=100))
    model = script["CNN"]()
    model.load_state_dict(weights)
    model.eval()
    pixels, digits = script["mnist_data"]()
    images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 28, 28) / 255
    torch.manual_seed(seed)
    val = torch.randperm(len(images))[4500:]  # drawn as the script draws them
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(images[val]), torch.tensor(digits)[val])
    return float(loss)


if __name__ == "__main__":
    main()
