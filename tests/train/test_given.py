"""Mistakes in what a Trainer is given are told at once, in words."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from outpace.errors import DataError, OutpaceError, UsageError
from outpace.serve.loader import Loader
from outpace.train.run import Run
from outpace.train.strategies import Constant, Ema
from outpace.train.trainer import Trainer
from tests.train.toys import Time, accuracy, fit, model, points, ready, trainer

X, Y = points(48)
MADE = ("prepare", "transform", "collate", "after")
SIZE = {"batch_size": 8}


class Typo:
    def on_epoch_end(self, run: Run) -> None:
        raise AssertionError


class Good:
    def epoch_end(self, run: Run) -> None:
        pass


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(zip(X, Y, strict=True))


class Once(IterableDataset[Any]):
    def __init__(self) -> None:
        self.samples = (sample for sample in zip(X, Y, strict=True))

    def __iter__(self) -> Iterator[Any]:
        return self.samples


def scheduled(weights: Any) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(weights, 0.1)
    torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 100)
    return optimizer


def at_rest(weights: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(weights, 0.0)


class OwnRate(torch.optim.SGD):
    """Finds its rate itself, as Adafactor may."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, 0.1)
        for group in self.param_groups:
            group["lr"] = None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": nn.Linear}, "model is the class Linear"),
        ({"model": [model()]}, "a list is no torch.nn.Module"),
        ({"loss": None}, "loss is None"),
        ({"loss": nn.CrossEntropyLoss}, "loss is the class CrossEntropyLoss"),
        ({"metric": Typo}, "metric is the class Typo"),
        ({"metric": {"accuracy": accuracy}}, "metric is {'accuracy'"),
        ({"epochs": 2.5}, "epochs=2.5"),
        ({"epochs": "3"}, "epochs='3'"),
        ({"steps": 0}, "steps=0"),
        ({"batch_size": "64"}, "batch_size='64'"),
        ({"validate_every": 0}, "validate_every=0"),
        ({"validate_every": -1}, "validate_every=-1"),
        ({"seed": "a"}, "seed='a'"),
        ({"seed": 1.5}, "seed=1.5"),
        ({"target": "0.9"}, "target='0.9'"),
        ({"target": float("nan")}, "target=nan"),
        ({"larger_is_better": "min"}, "larger_is_better='min'"),
        ({"optimizer": "adam"}, "optimizer='adam'"),
        ({"optimizer": 0.1}, "optimizer=0.1"),
        ({"optimizer": torch.optim.SGD(model(1).parameters(), 0.1)}, "none of the model's weights"),
        (
            {"optimizer": torch.optim.LBFGS(model().parameters())},
            "whose step\\(\\) asks for closure",
        ),
        ({"optimizer": OwnRate(model().parameters())}, "OwnRate without a rate"),
        ({"callbacks": print}, "callbacks="),
        ({"callbacks": [Good]}, "has the class Good"),
        ({"callbacks": [Typo()]}, "a Typo without a method for any event"),
        ({"callbacks": [Ema()]}, "callbacks= has the strategy Ema"),
        ({"train": (X, Y[:40]), "batch_size": 8}, "train= has tensors of 48 and 40 rows"),
        ({"train": (X.numpy(), Y.numpy()), "batch_size": 8}, "train= is a tuple of arrays"),
        ({"train": (X.numpy(), Y), "batch_size": 8}, "train= is a tuple of arrays"),
        (
            {"train": (X.numpy().tolist(), Y), "batch_size": 8},
            "train= is a tuple of list and Tensor",
        ),
        ({"train": (X, list(Y)), "batch_size": 8}, "train= is a tuple of Tensor and list"),
        ({"metric": "accuracy"}, "metric is 'accuracy'"),
        ({"train": Stream(), "batch_size": 8}, "train= is an IterableDataset"),
        ({"valid": [X, Y], "batch_size": 8}, "valid= is a list of tensors"),
        *(({name: print}, f"{name}= would not be used: train= gives ready") for name in MADE),
        (
            {"train": DataLoader(TensorDataset(X, Y), 8), "valid": (X, Y), "transform": print}
            | SIZE,
            "transform= would not be used: train=",
        ),
        (
            {"train": (X, Y), "valid": Loader(TensorDataset(X, Y), 8), "after": print} | SIZE,
            "after= would not be used: valid=",
        ),
    ],
)
def test_mistakes_are_told_before_anything_is_done(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as told:
        trainer(**given)
    assert told.value.hint


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"strategies": None}, UsageError, "strategies=None"),
        ({"strategies": 3}, UsageError, "strategies=3"),
        ({"strategies": [Ema]}, UsageError, "has the class Ema"),
        ({"optimizer": lambda weights: None}, UsageError, "gives a NoneType"),
        ({"optimizer": torch.optim.LBFGS}, UsageError, "asks for closure"),
        ({"optimizer": OwnRate}, UsageError, "OwnRate without a rate"),
        ({"metric": lambda *_: None}, UsageError, "metric= gives None"),
        ({"loss": lambda o, y: F.cross_entropy(o, y).detach()}, UsageError, "no gradient"),
        (
            {"train": X, "valid": None, "batch_size": 24},
            UsageError,
            "a batch is a tensor of 24 x 8",
        ),
        ({"checkpoint": __file__}, DataError, "no checkpoint can be kept in"),
        (
            {"loss": lambda net, batch: 0.0, "train": [{"x": X}]},
            UsageError,
            "a batch is a dict of x",
        ),
        ({"train": DataLoader(Once(), 8)}, UsageError, "a generator can be gone through once"),
        ({"optimizer": scheduled}, UsageError, "a scheduler is on the optimizer"),
        ({"optimizer": at_rest}, UsageError, "optimizer= has a rate of 0"),
    ],
)
def test_mistakes_that_show_later_are_told_too(
    given: dict[str, Any], error: type[OutpaceError], said: str
) -> None:
    with pytest.raises(error, match=said) as told:
        fit(**{"strategies": [Constant()], **given})
    assert told.value.hint


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_told() -> None:
    with pytest.raises(UsageError, match="torch sees no GPU"):
        trainer(device="cuda")


def test_what_is_right_is_taken() -> None:
    net = model()
    made = Trainer(
        net,
        loss=F.cross_entropy,
        train=[(x, y) for x, y in zip(X, Y, strict=True)],
        valid=(X, Y),
        epochs=np.int64(2),  # type: ignore[arg-type]
        seed=-1,
        target=np.float32(0.5),  # type: ignore[arg-type]
        optimizer=torch.optim.SGD(net[0].parameters(), 0.1),
        callbacks=(print, Good()),
    )
    assert type(made.target) is float


def test_a_transform_is_for_training_alone() -> None:
    seen: list[int] = []

    def transform(sample: Any) -> Any:
        seen.append(1)
        return sample

    given: dict[str, Any] = {"train": (X, Y), "valid": DataLoader(TensorDataset(X, Y), 8)}
    assert (
        fit(**given, transform=transform, batch_size=8, epochs=1, strategies=[Constant()]).steps
        == 6
    )
    assert seen


def test_ready_batches_may_be_few_and_of_several_sizes() -> None:
    batches = [torch.ones(4, 2), torch.ones(4, 2), torch.ones(3, 2)]
    net = torch.nn.Linear(2, 2)
    made = fit(
        model=net,
        loss=lambda model, batch: F.mse_loss(model(batch), batch),
        metric=None,
        train=batches,
        valid=batches,
        batch_size=None,
        epochs=1,
    )
    assert made.steps == 3


def test_a_traceback_tells_the_hint() -> None:
    with pytest.raises(UsageError) as told:
        trainer(batch_size=0)
    assert "hint: batch_size is a whole number" in "".join(traceback.format_exception(told.value))
    assert str(told.value) == "batch_size=0"


def test_weights_that_an_optimizer_does_not_have_are_told() -> None:
    net = model()
    made = fit(
        model=net, optimizer=torch.optim.SGD(net[-1].parameters(), 0.1), strategies=[], epochs=1
    )
    assert any("2 of the model's weights are not learnt" in note for note in made.notes)
    net[0].requires_grad_(False)  # meant so
    made = fit(
        model=net, optimizer=torch.optim.SGD(net[-1].parameters(), 0.1), strategies=[], epochs=1
    )
    assert not any("not learnt" in note for note in made.notes)


def test_a_budget_that_start_up_has_used_is_told() -> None:
    time = Time()

    class Slow:
        def begin(self, run: Run) -> None:
            time.s += 9.0

    result = fit(strategies=[Constant()], budget=5.0, epochs=None, now=time, callbacks=[Slow()])
    assert result.steps == 0
    assert any(
        "no step was made" in note and "9s, of a budget of 5s" in note for note in result.notes
    )


@pytest.mark.parametrize("folder", [True, False])
def test_what_is_interrupted_says_how_to_go_on(
    folder: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupt:
        def step_end(self, run: Run) -> None:
            if run.step == 7:
                raise KeyboardInterrupt

    made = trainer(
        strategies=[Constant()],
        train=ready(),
        callbacks=[Interrupt()],
        **({"checkpoint": tmp_path, "every": 0} if folder else {}),
    )
    with pytest.raises(KeyboardInterrupt):
        made.fit()
    said = capsys.readouterr().err
    assert "interrupted at step 7" in said
    assert "best weights" not in said, "there was no validation"
    assert (f"goes on from {tmp_path / 'step-000000000'}" in said) == folder
    assert ("with checkpoint='runs/a'" in said) != folder


class Frame:
    """Columns by name, as of pandas."""

    iloc = None

    def __len__(self) -> int:
        return 8

    def __getitem__(self, name: str) -> Any:
        raise KeyError(name)


@pytest.mark.parametrize("given", [{"x": torch.ones(8, 8), "y": torch.zeros(8)}, Frame()])
def test_what_has_columns_by_name_is_no_data_set(given: Any) -> None:
    with pytest.raises(UsageError, match=r"keys 'x', 'y'|a column"):
        trainer(train=given, batch_size=24)
