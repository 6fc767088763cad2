"""A table into a small network: what share of the step's own rate it has, and how soon it begins.

    python bench/serve/table.py [--rows 1000000] [--rounds 6] [--seconds 3] [--data FOLDER]

A million rows of 32 floats, 1,024 to a step, by three ways in turns: one batch that is there already, again
and again; `outpace.Loader` over what `outpace pack` made of the CSV; a DataLoader that takes row by row.
Printed: rows a second of each, the share that `outpace.Loader` has of the step alone and how many times the
DataLoader it has, and the seconds to the first batch: of the CSV, and of what is packed.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from statistics import median

import torch
from child import in_memory
from rivals import load
from torch import nn
from workloads import WORKLOADS

from outpace.measure.statistics import paired_gain

WARM = 50
"""steps before anything is timed"""


class Training:
    """A network of two layers and its step."""

    def __init__(self, width, classes):
        self.model = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, classes))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    def step(self, batch):
        x, label, _ = batch
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(x), label).backward()
        self.optimizer.step()

    def row_s(self, batches, seconds):
        """Seconds of a row, its step included."""
        rows, begun = 0, time.perf_counter()
        while (gone := time.perf_counter() - begun) < seconds:
            batch = next(batches)
            self.step(batch)
            rows += len(batch[1])
        return gone / rows


def first(make):
    """A stream of batches whose first is drawn, and the seconds that took."""
    begun = time.perf_counter()
    batches = iter(make())
    next(batches)
    return batches, time.perf_counter() - begun


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3.0)
    home = Path(tempfile.gettempdir(), "outpace-bench-serve")
    parser.add_argument("--data", type=Path, default=home)
    options = parser.parse_args()
    work = replace(WORKLOADS["csv"], count=options.rows)
    source = work.source(options.data.absolute())
    ours = load("ours")
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:  # by the code as it is now
        packed = Path(folder, "ours")
        packed.mkdir()
        ours.convert(work, source, packed)
        compare(options, work, source, packed)


def compare(options, work, source, packed):
    """Print rows a second, and when the first batches come."""
    ours, plain = load("ours"), load("plain")
    for folder in (source, packed):
        in_memory(folder)
    usual, from_csv_s = first(lambda: plain.batches(work, source, None, workers=0))
    begins = []
    for _ in range(options.rounds):
        fast, begin_s = first(lambda: ours.batches(work, packed, None, "auto", "auto"))
        begins.append(begin_s)
    ways = {"step alone": cycle([next(fast)]), "outpace.Loader": fast, "DataLoader": usual}
    training = Training(*work.size, work.classes)
    for batches in ways.values():
        for _ in range(WARM):
            training.step(next(batches))
    found = {name: [] for name in ways}
    for index in range(options.rounds):
        for name in ways if index % 2 == 0 else reversed(ways):
            found[name].append(training.row_s(ways[name], options.seconds))
    for name, seconds in found.items():
        print(f"{name}: {1 / median(seconds):,.0f} rows/s")
    for name, why in (("step alone", "of the step alone"), ("DataLoader", "times the DataLoader")):
        gain = paired_gain(found[name], found["outpace.Loader"])
        print(f"outpace.Loader: {gain.speedup:.2f} [{gain.low:.2f}, {gain.high:.2f}] {why}")
    print(f"first batch: {from_csv_s:.2f} s of the CSV, {median(begins):.2f} s of what is packed")


if __name__ == "__main__":
    main()
