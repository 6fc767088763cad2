"""What a contender is given on a workload, and what it is seen to reach by two clocks.

The clocks start when model and data are ready and the contender's packages imported, and run on during
its tuning and during validations, which all make at the same steps, with the same metric.
"""

import contextlib
import time
from typing import Any, NamedTuple, final

import psutil
import torch
from torch.utils.data import DataLoader, TensorDataset
from workload import Ready, Split, Workload, judged

TICK_S = 0.01
"""in which the system counts CPU time"""


class Point(NamedTuple):
    """A validation: seconds since the start, by the wall clock and of all cores, and what it gave."""

    wall_s: float
    cpu_s: float
    step: int
    metric: float


@final
class Race:
    """``target``: training may end once it is reached; None: it goes on until the budget is spent.

    ``rate``: a learning rate that suits the plain script; ``steps``: an end besides the budget.
    """

    def __init__(
        self,
        work: Workload,
        split: Split,
        *,
        seed: int,
        budget_s: float,
        target: float | None,
        rate: float,
        steps: int | None = None,
    ) -> None:
        warmed_up()
        torch.manual_seed(seed)
        self.work, self.seed, self.budget_s = work, seed, budget_s
        self.target, self.rate, self.steps = target, rate, steps
        self.model = work.model()
        self.train = split[:2]
        self.valid = Ready(*split[2:])
        self.metric = work.metric()
        self.curve: list[Point] = []
        self.notes: list[str] = []
        self.judging_s = 0.0
        """seconds of validations"""
        self._wall, self._cpu = time.perf_counter(), cpu_s()

    @property
    def elapsed_s(self) -> float:
        """By the wall clock."""
        return time.perf_counter() - self._wall

    @property
    def left_s(self) -> float:
        """Of the budget."""
        return self.budget_s - self.elapsed_s

    def loader(self) -> DataLoader[Any]:
        """Shuffled batches, as a script has them."""
        return DataLoader(TensorDataset(*self.train), self.work.batch, shuffle=True)

    def look(self, model: torch.nn.Module, step: int) -> bool:
        """After each step: validate where it is time to; whether training is to end."""
        if step % self.work.every == 0:
            self.judge(model, step)
        return self.over(step)

    def judge(self, model: torch.nn.Module, step: int) -> None:
        """Validate."""
        began = time.perf_counter()
        metric = judged(model, self.metric, self.valid)
        self.judging_s += time.perf_counter() - began
        self.note(step, metric)

    def note(self, step: int, metric: float) -> None:
        """A validation that was made."""
        cpu = max(TICK_S, cpu_s() - self._cpu)
        self.curve.append(Point(self.elapsed_s, cpu, step, metric))

    def over(self, step: int) -> bool:
        """Whether there is to be no further step."""
        if self.steps is not None and step >= self.steps:
            return True
        return self.left_s <= 0 or (bool(self.curve) and self.reaches(self.curve[-1].metric))

    def reaches(self, metric: float) -> bool:
        """Whether it is the target or better."""
        if self.target is None:
            return False
        return metric >= self.target if self.work.larger else metric <= self.target


def warmed_up() -> None:
    """A step of no matter what: torch imports a part of itself at the first, a second or two."""
    weight = torch.zeros(1, requires_grad=True)
    weight.sum().backward()
    torch.optim.AdamW([weight]).step()


def cpu_s() -> float:
    """CPU seconds of this process and of all that it started."""
    this = psutil.Process()
    found = sum(this.cpu_times()[:4])  # children that have ended included
    for child in this.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found += sum(child.cpu_times()[:4])
    return float(found)
