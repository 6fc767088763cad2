"""What a step of a training loop costs beside the step itself: ours and others' over bare torch.

    python bench/loop.py [--steps 4000] [--only bare trainer]

A tiny MLP (32-64-1, batch 32) on one thread, where a step is little more than Python, so that the loop
around it shows. All train on the same batches with the same loss and fused AdamW. Pairs are single
steps: whenever a loop draws a batch, a step of bare torch is made on a model of its own first, so
whatever else the machine does hits both alike. Of blocks of 50 steps the medians are compared, from the
400th step on. Printed: the loop's step over bare torch's, with the interval of the blocks, by wall clock
and by CPU time of the training's thread, and the CPU time of all steps and threads together, rare work
included; "bare" is a bare loop compared in that way, which is the noise. What a checkpoint costs shows in
the last.
Loops that are not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

from outpace.train.strategies import Divergence, OneCycle
from outpace.train.trainer import Trainer
from paired import ratio

WARM, BLOCK = 400, 50
BATCHES = 64


class Paired(IterableDataset[Any]):
    """Batches again and again; before each is given, a bare step is made and timed."""

    def __init__(self, batches: list[Any], steps: int) -> None:
        self.batches, self.steps = batches, steps
        self.bare: list[tuple[int, int]] = []
        self.theirs: list[tuple[int, int]] = []
        self.cpu_ns = 0
        """of all threads, from the step on that blocks begin with"""

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        batches, count = self.batches, len(self.batches)
        step = bare_step()
        for index in range(self.steps):
            if index == WARM:
                self.cpu_ns = -process_time_ns()
            x, y = batches[index % count]
            begin = perf_counter_ns(), thread_time_ns()
            step(x, y)
            middle = perf_counter_ns(), thread_time_ns()
            yield self.given(x, y)
            end = perf_counter_ns(), thread_time_ns()
            self.bare.append((middle[0] - begin[0], middle[1] - begin[1]))
            self.theirs.append((end[0] - middle[0], end[1] - middle[1]))
        self.cpu_ns += process_time_ns()

    def given(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        """A batch as the loop wants it."""
        return x, y

    def blocks(self, clock: int) -> tuple[list[float], list[float]]:
        """Medians of blocks of steps: bare ones, and those of the loop."""
        both = []
        for steps in (self.bare, self.theirs):
            times = [float(step[clock]) for step in steps[WARM:]]
            blocks = [times[i : i + BLOCK] for i in range(0, len(times) - BLOCK + 1, BLOCK)]
            both.append([median(block) for block in blocks])
        return both[0], both[1]


class Named(Paired):
    """The same for a loop that wants dictionaries."""

    def given(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        """A batch as the loop wants it."""
        return {"x": x, "y": y}


def mlp() -> torch.nn.Module:
    """The model."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))


def adamw(model: torch.nn.Module) -> torch.optim.AdamW:
    """The optimizer that all have."""
    return torch.optim.AdamW(model.parameters(), 1e-3, fused=True)


def bare_step() -> Callable[[torch.Tensor, torch.Tensor], None]:
    """What a person writes."""
    model = mlp()
    optimizer = adamw(model)

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def bare(data: Paired) -> None:
    """The same around the data."""
    step = bare_step()
    for x, y in data:
        step(x, y)


def ours(data: Paired, strategies: list[Any], **more: Any) -> None:
    """The Trainer."""
    model = mlp()
    trainer = Trainer(
        model,
        loss=F.mse_loss,
        train=data,
        batch_size=None,
        optimizer=adamw(model),
        epochs=1,
        strategies=strategies,
        device="cpu",
        **more,
    )
    trainer.fit(quiet=True)


def saving(data: Paired) -> None:
    """The Trainer with some ten checkpoints on the way, which a thread writes."""
    with TemporaryDirectory() as folder:
        ours(data, [Divergence(), OneCycle()], checkpoint=folder, every=0.1)


def accelerate(data: Paired) -> None:
    """Its loop as in its documentation."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = mlp()
    model, optimizer = accelerator.prepare(model, adamw(model))
    for x, y in data:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()


def fabric(data: Paired) -> None:
    """Lightning's part for loops of one's own."""
    from lightning.fabric import Fabric

    one = Fabric(accelerator="cpu", devices=1)
    module = mlp()
    model, optimizer = one.setup(module, adamw(module))
    loader = one.setup_dataloaders(DataLoader(data, batch_size=None))
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        one.backward(loss)
        optimizer.step()


def lightning(data: Paired) -> None:
    """A LightningModule, with nothing that writes or draws."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = mlp()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return F.mse_loss(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return adamw(self.model)

    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), data)


def transformers(data: Paired) -> None:
    """Its Trainer, with nothing that writes or draws."""
    import transformers

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = mlp()

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": F.mse_loss(self.model(x), y)}

    class Own(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            return DataLoader(data, batch_size=None)

    module = Module()
    with TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            output_dir=str(Path(folder)),
            max_steps=data.steps,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            max_grad_norm=0.0,  # none of the others clips
        )
        trainer = Own(module, settings, optimizers=(adamw(module), None))
        trainer.train()


def fastai(data: Paired) -> None:
    """A Learner on torch's optimizer, without validation."""
    from functools import partial

    from fastai.basics import (
        Callback,
        CancelValidException,
        DataLoaders,
        Learner,
        OptimWrapper,
    )

    class Unjudged(Callback):
        def before_validate(self) -> None:
            raise CancelValidException

    optimizer = partial(OptimWrapper, opt=torch.optim.AdamW, fused=True)
    loaders: Any = DataLoaders(data, [])
    learner = Learner(loaders, mlp(), F.mse_loss, opt_func=optimizer, cbs=Unjudged())
    with learner.no_logging():
        learner.fit(1, 1e-3)


WAYS: dict[str, Callable[[Paired], None]] = {
    "bare": bare,
    "trainer, no strategy": lambda data: ours(data, []),
    "trainer, divergence and one_cycle": lambda data: ours(data, [Divergence(), OneCycle()]),
    "trainer, the same with a budget": lambda data: ours(
        data, [Divergence(), OneCycle()], budget="1h"
    ),
    "trainer, the same with checkpoints": saving,
    "accelerate": accelerate,
    "fabric": fabric,
    "fastai": fastai,
    "lightning": lightning,
    "transformers": transformers,
}


PEERS = {
    "accelerate": "accelerate",
    "fabric": "lightning",
    "fastai": "fastai",
    "lightning": "lightning",
    "transformers": "transformers",
}
"""and the package of each"""


def main() -> None:
    """Run each way and print a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--only", nargs="+", default=list(WAYS), choices=list(WAYS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in ("lightning", "lightning.pytorch", "transformers", "accelerate"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.manual_seed(0)
    batches = [(torch.randn(32, 32), torch.randn(32, 1)) for _ in range(BATCHES)]
    for name in options.only:
        if name in PEERS and importlib.util.find_spec(PEERS[name]) is None:
            continue
        data = (Named if name == "transformers" else Paired)(batches, options.steps)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            WAYS[name](data)
        (base, theirs), (base_cpu, theirs_cpu) = data.blocks(0), data.blocks(1)
        bare_ns = sum(step[1] for step in data.bare[WARM:])
        print(
            f"{name:<34} {median(theirs) / 1e3:6.1f} us a step, bare {median(base) / 1e3:6.1f}   "
            f"wall {ratio(theirs, base)}   CPU {ratio(theirs_cpu, base_cpu)}"
            f"   all {(data.cpu_ns - bare_ns) / bare_ns:.2f}x",
            flush=True,
        )


if __name__ == "__main__":
    main()
