"""What places in shared memory give where batches come from worker processes.

    python bench/places.py [--rounds 6]

Two persistent workers of a DataLoader copy arrays into batches of several sizes, with memory of its own
for each batch and with places that are used again; in turns. Printed: batches a second, CPU time of a
batch over all processes, and how many times as fast, with the interval of the pairs.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from outpace.seams.setup import Feed
from outpace.serve.feeds import Processes, make_feed
from paired import Spent, ratio

SIZES = {
    "4 KiB x 256": (256, 4 << 10),
    "64 KiB x 64": (64, 64 << 10),
    "588 KiB x 64 (3 x 224 x 224 floats)": (64, 588 << 10),
}
SECONDS, WARM = 1.5, 0.3
TICK = 1 / os.sysconf("SC_CLK_TCK")


class Copies(Dataset[Any]):
    """Samples that are there already: to make one is to copy it."""

    def __init__(self, size: int) -> None:
        self.samples = torch.arange(16 * size // 4, dtype=torch.float32).view(16, -1)

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> Any:
        return self.samples[index % 16]


def cpu_s(runner: Processes) -> float:
    """Of this process and its workers."""
    spent = time.process_time()
    for pid in runner.pids():
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        spent += TICK * (int(fields[11]) + int(fields[12]))
    return spent


def drained(runner: Processes, batches: Iterator[Any], seconds: float) -> Spent:
    """Seconds of a batch."""
    begun, cpu, count = time.perf_counter(), cpu_s(runner), 0
    while time.perf_counter() - begun < seconds:
        next(batches)
        count += 1
    return Spent((time.perf_counter() - begun) / count, (cpu_s(runner) - cpu) / count)


def told(seen: list[Spent]) -> str:
    """In words."""
    rate, cpu = 1 / median(s.wall for s in seen), median(s.cpu for s in seen)
    return f"{rate:,.0f} a second, {1e3 * cpu:.1f} ms CPU each"


def main() -> None:
    """Measure every size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=6)
    rounds = parser.parse_args().rounds
    for name, (batch_size, size) in SIZES.items():
        arms = []
        for place_bytes in (0, batch_size * size):
            feed = Feed(executor="processes", workers=2, persistent=True, place_bytes=place_bytes)
            runner = make_feed(DataLoader(Copies(size), batch_size), feed)
            assert isinstance(runner, Processes)
            arms.append((runner, iter(runner.epoch()), list[Spent]()))
        for _ in range(rounds):
            for runner, batches, seen in arms:
                runner.resume()
                drained(runner, batches, WARM)
                seen.append(drained(runner, batches, SECONDS))
                runner.pause()
        own, again = (seen for _, _, seen in arms)
        print(f"{name}: {told(own)} -> {told(again)}", flush=True)
        print(f"  {ratio([s.wall for s in own], [s.wall for s in again])}", flush=True)
        for runner, _, _ in arms:
            runner.close()


if __name__ == "__main__":
    main()
