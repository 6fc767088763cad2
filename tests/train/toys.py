"""Small trainings that end in a second, and a clock that the tests move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from outpace.train.result import Result
from outpace.train.trainer import Trainer

CLASSES = 3


def points(count: int = 240, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of three classes that a line tells apart."""
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=chance)
    return x, x[:, :CLASSES].argmax(1)


def ready(count: int = 240, size: int = 24, seed: int = 0) -> list[Any]:
    """The same as ready batches."""
    x, y = points(count, seed)
    return list(zip(x.split(size), y.split(size), strict=True))


def model(seed: int = 0, *, dropout: float = 0.0, norm: bool = False) -> nn.Module:
    torch.manual_seed(seed)
    middle: list[nn.Module] = [nn.BatchNorm1d(16)] if norm else []
    return nn.Sequential(
        nn.Linear(8, 16), *middle, nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, CLASSES)
    )


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.argmax(1) == targets).float().mean()


def trainer(**given: Any) -> Trainer:
    """A Trainer of ready batches, one_cycle at a rate that suits them unless told otherwise."""
    from outpace.train.strategies import OneCycle

    settings: dict[str, Any] = {
        "model": model(),
        "loss": F.cross_entropy,
        "metric": accuracy,
        "train": ready(),
        "valid": ready(120, seed=1),
        "batch_size": None,
        "strategies": [OneCycle(rate=0.03)],
        "device": "cpu",
        **given,
    }
    if not any(name in settings for name in ("budget", "epochs", "steps")):
        settings["epochs"] = 4
    return Trainer(settings.pop("model"), **settings)


def fit(**given: Any) -> Result:
    return trainer(**given).fit(quiet=True)


def same(one: Any, other: Any) -> bool:
    """Whether two nests hold the same bits."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other) and one.dtype == other.dtype
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


class Time:
    """Time that stands still but for what the test adds."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


class Slow:
    """Batches each of which takes so many seconds of the test's time."""

    def __init__(
        self, batches: list[Any], time: Time, seconds: float | Callable[[], float]
    ) -> None:
        self.batches, self.time, self.seconds = batches, time, seconds

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            self.time.s += self.seconds() if callable(self.seconds) else self.seconds
            yield batch
