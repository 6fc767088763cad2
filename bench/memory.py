"""Memory that `outpace plan --memory` predicts against what the allocator then holds.

    python bench/memory.py [--batch 16] [--times 3] [--only gpt_flash] [--device cuda] [--jobs 8]
    python bench/memory.py --device cuda --rooms 768 3072 [--jobs 8]

Each of the ten trainings in bench/models.py is looked at with one batch size; predicted is the peak of
a step with so many times as large a one, which is then run and measured: by torch's profiler, or by the
allocator of a GPU.

With --rooms the largest batch that is told to fit into so many MiB of a GPU is run in no more than
these, and so is one a tenth larger.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from models import MODELS
from outpace.measure.ceilings import ceilings
from outpace.measure.machine import describe

SCRIPT = Path(__file__).parent / "models.py"
BARS = {"cpu": 0.02, "cuda": 0.05}


def main() -> None:
    """Predict, measure, and print a row a training."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--only", choices=MODELS)
    parser.add_argument("--device", choices=BARS, default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at once")
    parser.add_argument("--rooms", type=int, nargs="+", metavar="MIB", default=[])
    options = parser.parse_args()
    names = [name for name in MODELS if options.only in (None, name)]
    ceilings(describe())  # alone: several at a time would keep each other's share for good
    with ThreadPoolExecutor(options.jobs) as pool:
        if options.rooms:
            rooms(names, options, pool)
        else:
            peaks(names, options, pool)


def peaks(names: list[str], options: argparse.Namespace, pool: ThreadPoolExecutor) -> None:
    """A row a training: its own batch, and a larger one."""
    batches = options.batch, options.times * options.batch
    bar = BARS[options.device]
    print(f"training       at {batches[0]:>4}   off     at {batches[1]:>4}   off   (MB predicted)")

    def row(name: str) -> list[tuple[int, int]]:
        return [
            (
                told(name, options, batch)["peak_bytes"],
                int(ran(name, options.device, batch).stdout.split()[-1]),
            )
            for batch in batches
        ]

    right = 0
    for name, found in zip(names, pool.map(row, names), strict=True):
        errors = [predicted / measured - 1 for predicted, measured in found]
        right += max(map(abs, errors)) <= bar
        shown = (
            f"{predicted / 1e6:>8.1f} {100 * error:>+5.1f} %"
            for (predicted, _), error in zip(found, errors, strict=True)
        )
        print(f"{name:<12} {'  '.join(shown)}", flush=True)
    print(f"{right} of {len(names)} within {100 * bar:.0f} %")


def rooms(names: list[str], options: argparse.Namespace, pool: ThreadPoolExecutor) -> None:
    """A row a training and room: the largest batch that is told to fit, and whether it does."""
    cases = [(name, room) for room in options.rooms for name in names]

    def row(case: tuple[str, int]) -> tuple[int, bool, bool]:
        name, room = case
        largest = told(name, options, options.batch, "--room", str(room))["largest_batch"]
        fit = partial(fits, name, options.device, room)
        if not largest:
            return 0, True, fit(1)
        return largest, fit(largest), fit(largest + max(1, largest // 10))

    print("training       MiB   batch told to fit   fits   a tenth larger fits")
    false = 0
    for (name, room), (largest, fit, more) in zip(cases, pool.map(row, cases), strict=True):
        false += not fit
        print(f"{name:<12} {room:>5} {largest:>19}   {yes(fit):<4}   {yes(more)}", flush=True)
    print(f"{false} of {len(cases)} told to fit did not")


def yes(is_so: bool) -> str:
    """In words."""
    return "yes" if is_so else "no"


def told(name: str, options: argparse.Namespace, asked: int, *more: str) -> Any:
    """What is told of a step with ``asked`` samples, of a training with --batch."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "outpace", "plan", "--memory", "--json", "--quiet", "--batch",
             str(asked), str(SCRIPT), name, "--batch", str(options.batch),
             "--device", options.device, *more],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode not in (0, 3):
        sys.exit(f"{name}: {done.stderr}")
    return json.loads(done.stdout)["memory"]


def ran(name: str, device: str, batch: int, *more: str) -> subprocess.CompletedProcess[str]:
    """A training that tells the bytes that the allocator holds at the peak of a step."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), name, "--batch", str(batch), "--device", device,
         "--measure", *more],
        env={**os.environ, "KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode and "OutOfMemoryError" not in done.stderr:
        sys.exit(f"{name}: {done.stderr}")
    return done


def fits(name: str, device: str, room: int, batch: int) -> bool:
    """Whether a training runs in so many MiB."""
    return ran(name, device, batch, "--room", str(room)).returncode == 0


if __name__ == "__main__":
    main()
