"""Trainings of two ranks, sharded or not, one after the other in the same processes.

Arguments: a folder, and a JSON list of cases, each the arguments of `train`. Rank 0 writes what each ended
with into a file of its name.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from outpace.errors import UsageError
from outpace.serve.loader import Loader
from outpace.train import ranks
from outpace.train.run import Run
from outpace.train.strategies import (
    STRATEGIES,
    Accumulation,
    Divergence,
    Ema,
    LrFinder,
    OneCycle,
    ScheduleFree,
    Strategy,
    Transfer,
)
from outpace.train.strategies.base import Course
from outpace.train.trainer import Trainer
from tests.train.toys import CLASSES, accuracy, points, size_loss

WIDTH = 320
"""so that the layer in the middle is gathered on its own"""


def wide(seed: int = 0, *, norm: bool = False) -> nn.Module:
    torch.manual_seed(seed)
    middle: list[nn.Module] = [nn.BatchNorm1d(WIDTH)] if norm else []
    return nn.Sequential(
        nn.Linear(8, WIDTH, bias=not norm),  # before a norm it would learn from rounding alone
        *middle,
        nn.Tanh(),
        nn.Linear(WIDTH, WIDTH),
        nn.Tanh(),
        nn.Linear(WIDTH, CLASSES),
    )


def strategies_of(name: str) -> list[Strategy]:
    course: list[Strategy] = [Divergence(), OneCycle(rate=0.003)]
    if name == "plain":
        return course
    if name == "schedule_free":
        return [ScheduleFree(rate=0.003)]
    if name in ("ema", "spoilt"):
        return [*course, Ema(0.9, every=2)]
    if name == "transfer":
        other = wide(seed=5).state_dict()
        return [*course, Transfer({n: w for n, w in other.items() if n[0] != "4"})]
    if name == "lr_finder":
        return [LrFinder(), OneCycle()]
    if name == "together":
        return [*course, Accumulation(3)]
    given = STRATEGIES[name]()
    return [given] if isinstance(given, Course) else [*course, given]


class Clip:
    """As users do it. Notes the norms, how weights are held, and which samples are drawn."""

    def __init__(self, stop: int | None, spoilt: int | None) -> None:
        self.stop, self.spoilt = stop, spoilt
        self.norms: list[float] = []
        self.held = 0
        self.seen: list[Any] = []

    def batch(self, run: Run, batch: Any) -> None:
        if isinstance(run.train.source, Loader):
            self.seen.append([run.step, *run.train.source.indices.tolist()])

    def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor:
        return loss * torch.nan if run.step == self.spoilt else loss

    def gradients(self, run: Run) -> None:
        weights = list(run.module.parameters())
        norm: Any = nn.utils.clip_grad_norm_(weights, 1.0)
        self.norms.append(float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm))
        local = [getattr(weight, "to_local", lambda w=weight: w)() for weight in weights]
        self.held = sum(each.numel() for each in local)

    def step_end(self, run: Run) -> None:
        if run.step == self.stop:
            assert run.checkpoints is not None
            run.checkpoints.wait()
            raise KeyboardInterrupt


def train(
    folder: Path,
    *,
    shard: bool,
    name: str = "plain",
    checkpoint: str | None = None,
    stop: int | None = None,
    norm: bool = False,
    epochs: int = 4,
    uneven: bool = False,
) -> dict[str, Any]:
    world, rank = distributed.get_world_size(), distributed.get_rank()
    tasks = {"class": F.cross_entropy, "size": size_loss}
    valid: Any = Loader(TensorDataset(*points(120, 1)), 12, executor="none", shuffle=False)
    if uneven:
        valid = DataLoader(TensorDataset(*points(60 - 24 * rank, 1)), 12)
    clip = Clip(stop, 40 if name == "spoilt" else None)
    model = wide(norm=norm)
    trainer = Trainer(
        model,
        loss=tasks if name == "task_curriculum" else F.cross_entropy,
        metric=accuracy,
        device="cpu",
        shard=shard,
        train=Loader(TensorDataset(*points()), 24 // world, executor="none"),
        valid=valid,
        strategies=strategies_of(name),
        epochs=epochs,
        callbacks=[clip],
        checkpoint=folder / checkpoint if checkpoint else None,
        every=0,
    )
    told: dict[str, Any] = {}
    try:
        result = trainer.fit(quiet=True)
    except KeyboardInterrupt:
        told["stopped"] = "by hand"
    except UsageError as error:
        told["refused"] = str(error)
    else:
        assert all(torch.equal(w, result.weights[n]) for n, w in model.state_dict().items())
        weights = {n: w.double().flatten()[::7].tolist() for n, w in result.weights.items()}
        told.update(result.told(), weights=weights)
    distributed.barrier()
    return {**told, "norms": clip.norms, "held": clip.held, "seen": clip.seen}


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    if ranks.met(torch.device("cpu")) == 1:
        distributed.init_process_group("gloo")
    for key, case in json.loads(sys.argv[2]).items():
        told = train(folder, **case)
        (folder / f"{key}-{distributed.get_rank()}.json").write_text(json.dumps(told))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
