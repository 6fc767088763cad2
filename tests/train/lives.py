"""Trainings that are killed and go on: python -m tests.train.lives FOLDER KILLS SEED

Each life goes on from the checkpoints of the one before, with its samples made in another way and its
checkpoints at other intervals. At a random step, and at a random moment of it, it is killed with SIGKILL,
its workers too. A training that comes to its end is compared, bit for bit, with one that was never
interrupted, and the next one begins, until there were so many kills.

One process imports torch and forks them all, so that a life costs as much as its steps. Prints what
became of them as JSON.
"""

from __future__ import annotations

import itertools
import json
import random
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from outpace.serve.executors import Kind
from outpace.serve.loader import Loader
from outpace.train.checkpoint import BEST, Checkpoints
from outpace.train.run import Run
from outpace.train.strategies import (
    Accumulation,
    BatchWarmup,
    Constant,
    Divergence,
    DropoutOff,
    Ema,
    Linear,
    LossSampling,
    Muon,
    OneCycle,
    Plateau,
    ProgressiveResizing,
    Pruning,
    ScheduleFree,
    Sgd,
    Subset,
)
from tests.mortal import kill_soon, lived
from tests.train.toys import convolutional, deep, images, made, model, points, same, trainer

KINDS: tuple[Kind, ...] = ("none", "threads", "processes")
EVERY = (0.0, 0.01, 0.05)
"""seconds between two checkpoints; 0: the next is begun as soon as one is written"""
EPOCHS, MOST_STEPS = 8, 40
"""of a training, and of a life that is killed"""
SPOILT = 75
"""the step of one of them at which it diverges"""


class Noisy(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Draws from the process's own generators."""

    def __init__(self) -> None:
        self.x, self.y = points()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = torch.randn(8) * 0.1 + float(np.random.rand()) * 0.1
        return self.x[index] + noise, self.y[index]


class Spoils:
    """Once, the loss is not a number."""

    def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor | None:
        return loss * torch.nan if run.step == SPOILT else None


torch.set_num_threads(1)  # a fork has none of the others
TRAININGS: dict[str, dict[str, Any]] = {
    "averaged": {
        "strategies": [Divergence(every=32), OneCycle(rate=0.02), Ema(0.98)],
        "validate_every": 7,
        "callbacks": [Spoils()],
    },
    "accumulated": {"strategies": [Accumulation(3), Sgd(), Linear(rate=0.05)]},
    "resized": {
        "strategies": [ProgressiveResizing(), OneCycle(rate=0.02)],
        "model": convolutional(),
        "train": images(),
        "valid": images(seed=1),
    },
    "drawn": {
        "strategies": [Constant(rate=0.02), Ema(0.9, every=2)],
        "train": DataLoader(Noisy(), 16, shuffle=True),
        "validate_every": 7,
    },
    "growing": {"strategies": [BatchWarmup("noise"), OneCycle(rate=0.02)]},
    "stalling": {"strategies": [Plateau(rate=0.5, drop=0.1)], "validate_every": 3},
    "free": {"strategies": [ScheduleFree(rate=0.02)]},
    "sampled": {"strategies": [LossSampling(), Muon(), Linear(rate=0.02)], "model": deep()},
    "pruned": {"strategies": [Pruning(), DropoutOff(), OneCycle(rate=0.02)]},
    "transferred": {"strategies": [made("transfer"), Subset(), OneCycle(rate=0.02)]},
}


class Life(NamedTuple):
    """How a training goes on, and after how many steps it is killed, if it is."""

    name: str
    kind: Kind = "none"
    every: float = 0.0
    killed_after: int | None = None
    moment_s: float = 0.0


class Mortal:
    """A callback that notes where a life begins, and brings its end."""

    def __init__(self, life: Life, folder: Path) -> None:
        self.life, self.steps = life, 0
        self.begun = begun_in(folder)

    def begin(self, run: Run) -> None:
        with self.begun.open("a") as file:
            print(run.step, file=file)

    def step_end(self, run: Run) -> None:
        self.steps += 1
        if self.steps == self.life.killed_after:
            kill_soon(self.life.moment_s)


def begun_in(folder: Path) -> Path:
    """Where the steps are noted that lives begin with."""
    return folder.with_suffix(".begun")


def live(life: Life, folder: Path) -> None:
    """Ends with the training, or by being killed."""
    if life.killed_after == 0:
        kill_soon(life.moment_s)
    given: dict[str, Any] = {
        "callbacks": [],
        "model": model(dropout=0.3, norm=True),
        "train": Loader(TensorDataset(*points()), 16, executor=life.kind, workers=2),
        **TRAININGS[life.name],
    }
    given["callbacks"] = [*given["callbacks"], Mortal(life, folder)]
    trainer(**given, epochs=EPOCHS, checkpoint=folder, every=life.every).fit(quiet=True)


def died(life: Life, folder: Path) -> bool:
    """Whether it was killed; else it came to the training's end."""
    code = lived(partial(live, life, folder))
    if code not in (0, -signal.SIGKILL):
        sys.exit(f"{life} ended with {code}")
    return code != 0


def ended(folder: Path) -> dict[str, Any]:
    """All that a training ended with, but for times, and for how its data were gone through."""
    found = Checkpoints(folder, 1.0, sys.exit).newest()
    assert found is not None
    state = found[1]
    for row in (*state["history"], state["best"]["row"]):
        del row["seconds"]
    weights = torch.load(folder / BEST, weights_only=True)
    parts = "model optimizer strategies random rates losses progress history notes best"
    return {"weights": weights, **{part: state[part] for part in parts.split()}}


def main() -> None:
    """Live until there were enough kills, spread over all trainings."""
    folder, kills, chance = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    torch.optim.AdamW(model().parameters())  # the first one imports for seconds
    each = -(-kills // len(TRAININGS))
    wanted: dict[str, dict[str, Any]] = {}
    lives: list[Life] = []
    unlike: list[str] = []
    killed = cut_short = went_on = 0
    for number, name in enumerate(itertools.cycle(TRAININGS)):
        if killed >= kills:
            break
        if name not in wanted:
            assert not died(Life(name), folder / name)
            wanted[name] = ended(folder / name)
        path, deaths, dead = folder / f"killed-{number}", 0, True
        while dead:
            life = Life(
                name,
                chance.choice(KINDS),
                chance.choice(EVERY),
                killed_after=chance.randint(0, MOST_STEPS) if deaths < each else None,
                moment_s=chance.choice((0.0, 0.003, 0.03)) * chance.random(),
            )
            dead = died(life, path)
            lives.append(life)
            deaths += dead
            cut_short += any(path.glob("*.part"))
        killed += deaths
        began = begun_in(path).read_text().split()
        went_on += sum(int(step) > 0 for step in began)
        end = ended(path)
        unlike += [f"{name}: {part}" for part in end if not same(end[part], wanted[name][part])]
    told = {"kills": killed, "cut_short": cut_short, "went_on": went_on, "unlike": unlike}
    for field in ("name", "kind", "every"):
        told[field] = sorted({getattr(life, field) for life in lives})
    print(json.dumps(told))


if __name__ == "__main__":
    main()
