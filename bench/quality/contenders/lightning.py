"""Lightning: a LightningModule with AdamW, its rate found by the Tuner."""

import logging
import warnings
from typing import Any

import lightning
import torch
from lightning.pytorch.tuner import Tuner
from race import Race


class Module(lightning.LightningModule):
    """The model and its loss."""

    def __init__(self, race: Race) -> None:
        super().__init__()
        self.model, self.loss, self.lr = race.model, race.work.loss, 1e-3

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """The loss of a batch."""
        x, y = batch
        return self.loss(self.model(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """At the rate that was found."""
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


class Look(lightning.Callback):
    """Validates, and ends training."""

    def __init__(self, race: Race) -> None:
        self.race = race

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        """After each step."""
        if self.race.look(module.model, trainer.global_step):
            trainer.should_stop = True


def train(race: Race) -> None:
    """Find the rate, and fit."""
    warnings.simplefilter("ignore")
    for name in ("lightning", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.ERROR)
    trainer = lightning.Trainer(
        max_epochs=-1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module, loader = Module(race), race.loader()
    Tuner(trainer).lr_find(module, train_dataloaders=loader)
    race.notes.append(f"lr_find: rate {module.lr:.2g} in {race.elapsed_s:.1f} s")
    trainer.callbacks.append(Look(race))
    trainer.fit(module, loader)
