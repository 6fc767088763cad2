"""What a rate that falls at the end is worth: falls of several lengths against none, after as many steps.

    python bench/fall.py [--only diamonds] [--steps 60,140,400,1500] [--seeds 5] [--rate 1e-3] [--sgd]

The plateau of `outpace run --land` holds a script's rate and lets it fall over the last part of the time
(src/outpace/plan/schedule.py). Here steps are counted instead of seconds, so that nothing else runs on the
clock: each training holds its rate, and from where each fall begins a copy of it goes on with that fall, on
the same batches. Printed is the validation loss over that without a fall, the geometric mean of the seeds,
and in how many of them it is lower. The trainings are those of bench/quality.
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent / "quality"))

from kept import DATA
from workload import NAMES, load, split_of

JUDGED = 2000
FALLS = {
    "line 5 %": (0.05, lambda left: left),
    "line 10 %": (0.1, lambda left: left),
    "line 20 %": (0.2, lambda left: left),
    "cosine 15 %": (0.15, lambda left: 0.5 * (1 - math.cos(math.pi * left))),
    "line 100 %": (1.0, lambda left: left),
}
"""share of the steps, and the rate by the share of the fall that is left"""
NONE = "none"


def main() -> None:
    """Train, and print a row for each number of steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=NAMES)
    parser.add_argument("--steps", default="60,140,400,1500")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--sgd", action="store_true", help="with momentum, in the place of AdamW")
    options = parser.parse_args()
    lengths = [int(word) for word in options.steps.split(",")]
    torch.set_num_threads(1)
    for name in NAMES:
        if options.only not in (None, name):
            continue
        try:
            losses = [
                Training(name, seed, options.rate, sgd=options.sgd).losses(lengths)
                for seed in range(options.seeds)
            ]
        except ModuleNotFoundError as missing:
            print(f"{name:<12} left out: {missing} (pip install 'outpace[bench]')", flush=True)
            continue
        for steps in lengths:
            row = [f"{name:<12} {steps:>6} steps"]
            for fall in FALLS:
                ratios = [each[steps, fall] / each[steps, NONE] for each in losses]
                better = sum(ratio < 1 for ratio in ratios)
                mean = statistics.geometric_mean(ratios)
                row.append(f"{fall}: {mean:.3f} ({better} of {len(ratios)})")
            print("   ".join(row), flush=True)


class Training:
    """One that holds its rate; ``losses`` are of copies that let it fall."""

    def __init__(self, name: str, seed: int, rate: float, *, sgd: bool) -> None:
        self.load, self.rate, self.sgd, self.seed = load(name), rate, sgd, seed
        self.x, self.y, valid_x, valid_y = split_of(name, DATA)
        self.valid = (valid_x[:JUDGED], valid_y[:JUDGED])
        torch.manual_seed(seed)
        self.model = self.load.model()
        self.optimizer = self.made(self.model)

    def made(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        """An optimizer of a model's weights."""
        if self.sgd:
            return torch.optim.SGD(model.parameters(), lr=self.rate, momentum=0.9)
        return torch.optim.AdamW(model.parameters(), lr=self.rate)

    def losses(self, lengths: list[int]) -> dict[tuple[int, str], float]:
        """Validation losses by number of steps and fall."""
        found: dict[tuple[int, str], float] = {}
        batches = self.batches(max(lengths))
        begins = {
            (n, fall): max(0, n - max(1, round(share * n)))
            for n in lengths
            for fall, (share, _) in FALLS.items()
        }
        for step in range(max(lengths) + 1):
            if step in lengths:
                found[step, NONE] = self.judged(self.model)
            for (n, fall), begin in begins.items():
                if begin == step:
                    found[n, fall] = self.fallen(batches[begin:n], fall)
            if step < max(lengths):
                self.learn(self.model, self.optimizer, batches[step], self.rate)
        return found

    def fallen(self, batches: list[torch.Tensor], fall: str) -> float:
        """The loss of a copy that lets its rate fall from here on."""
        model = copy.deepcopy(self.model)
        optimizer = self.made(model)
        optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        for index, batch in enumerate(batches):
            left = (len(batches) - index) / (len(batches) + 1)
            self.learn(model, optimizer, batch, self.rate * FALLS[fall][1](left))
        return self.judged(model)

    def learn(self, model: Any, optimizer: Any, batch: torch.Tensor, rate: float) -> None:
        """One step."""
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        self.load.loss(model(self.x[batch]), self.y[batch]).backward()
        optimizer.step()

    def judged(self, model: torch.nn.Module) -> float:
        """Mean validation loss."""
        model.eval()
        with torch.no_grad():
            found = float(self.load.loss(model(self.valid[0]), self.valid[1]))
        model.train()
        return found

    def batches(self, count: int) -> list[torch.Tensor]:
        """Rows of each step's batch, epoch after epoch."""
        chance = torch.Generator().manual_seed(self.seed + 1000)
        found: list[torch.Tensor] = []
        while len(found) < count:
            order = torch.randperm(len(self.x), generator=chance)
            whole = len(order) // self.load.batch * self.load.batch
            found += order[:whole].split(self.load.batch)
        return found


if __name__ == "__main__":
    main()
