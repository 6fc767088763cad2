"""The Trainer of Transformers: AdamW with its linear fall, over the plain script's steps or those that the
budget holds, as a few of them tell.

It gets the plain script's rate: its own tuner is a search over whole trainings.
"""

import copy
import itertools
from statistics import median
from typing import Any

import torch
import transformers
from race import Race
from torch.utils.data import Dataset

TIMED = 20
"""steps on a copy, on the clock, which tell how many the budget holds"""


class Module(torch.nn.Module):
    """A model that tells its loss."""

    def __init__(self, race: Race, model: torch.nn.Module) -> None:
        super().__init__()
        self.model, self.loss = model, race.work.loss

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        """Of a batch."""
        return {"loss": self.loss(self.model(x), y)}


class Rows(Dataset[Any]):
    """Samples as dictionaries."""

    def __init__(self, tensors: tuple[torch.Tensor, ...]) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        x, y = (tensor[index] for tensor in self.tensors)
        return {"x": x, "y": y}


class Look(transformers.TrainerCallback):
    """Validates, and ends training."""

    def __init__(self, race: Race, model: torch.nn.Module) -> None:
        self.race, self.model = race, model

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After each step."""
        if self.race.look(self.model, state.global_step):
            control.should_training_stop = True


class Pace(transformers.TrainerCallback):
    """Notes when steps have ended."""

    def __init__(self, race: Race) -> None:
        self.race = race
        self.ended: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After each step."""
        self.ended.append(self.race.elapsed_s)


def train(race: Race) -> None:
    """To the end of the steps, or of the budget."""
    pace = Pace(race)
    trainer(race, Module(race, copy.deepcopy(race.model)), TIMED, pace).train()
    step_s = median(later - one for one, later in itertools.pairwise(pace.ended))
    steps = min(race.work.steps, max(1, int(race.left_s / step_s)))
    trainer(race, Module(race, race.model), steps, Look(race, race.model)).train()


def trainer(race: Race, module: Module, steps: int, callback: Any) -> Any:
    """One of so many steps."""
    settings = transformers.TrainingArguments(
        output_dir=".",
        max_steps=steps,
        per_device_train_batch_size=race.work.batch,
        learning_rate=race.rate,
        seed=race.seed,
        use_cpu=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    return transformers.Trainer(
        module, settings, train_dataset=Rows(race.train), callbacks=[callback]
    )
