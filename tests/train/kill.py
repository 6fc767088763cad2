"""Trainings that a test kills, each in a fork of a process that has imported all there is to import.

For every line ``FOLDER EPOCHS KIND`` on stdin one is begun. It tells its pid, every fifth step, a digest
of what it gave at its end, and its exit code.
"""

from __future__ import annotations

import hashlib
import os
import sys
import traceback

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from outpace.serve.loader import Loader
from outpace.train.result import Result
from outpace.train.run import Run
from outpace.train.strategies import Divergence, Ema, OneCycle
from outpace.train.trainer import Trainer
from tests.train.toys import accuracy, model, points


class Noisy(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Draws from the process's own generators."""

    def __init__(self) -> None:
        self.x, self.y = points()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = torch.randn(8) * 0.1 + float(np.random.rand()) * 0.1
        return self.x[index] + noise, self.y[index]


def digest(result: Result) -> str:
    """Of weights, best weights and history without times."""
    found = hashlib.sha256()
    for name, weight in result.weights.items():
        found.update(name.encode() + weight.numpy().tobytes())
    for row in result.history:
        found.update(
            repr((row.step, row.train_loss, row.valid_loss, row.metric, row.rate)).encode()
        )
    return found.hexdigest()


def fit(folder: str, epochs: int, kind: str) -> Result:
    train = {
        "loader": lambda: Loader(TensorDataset(*points()), 16, executor="none"),
        "dataloader": lambda: DataLoader(Noisy(), 16, shuffle=True),
    }[kind]()

    def tell(run: Run) -> None:
        if run.step % 5 == 0:
            print("step", run.step, flush=True)

    class Telling:
        step_end = staticmethod(tell)

    made = Trainer(
        model(dropout=0.3, norm=True),
        loss=F.cross_entropy,
        metric=accuracy,
        train=train,
        valid=DataLoader(TensorDataset(*points(60, 1)), 20),
        epochs=epochs,
        strategies=[Divergence(), OneCycle(rate=0.02), Ema(0.98)],
        validate_every=7,
        device="cpu",
        checkpoint=folder,
        every=0,
        callbacks=[Telling()],
    )
    return made.fit(quiet=True)


def child(folder: str, epochs: str, kind: str) -> None:
    code = 1
    try:
        print("digest", digest(fit(folder, int(epochs), kind)), flush=True)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> None:
    torch.set_num_threads(1)
    torch.optim.AdamW(model().parameters())  # the first one imports for seconds
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            child(*line.split())
        print("pid", pid, flush=True)
        print("ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
