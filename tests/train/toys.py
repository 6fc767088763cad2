"""Small trainings that end in a second, and a clock that the tests move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.train.result import Result
from outpace.train.run import Run
from outpace.train.strategies import STRATEGIES, OneCycle, RepeatFactor, Strategy, Target, Transfer
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


def partly_ignored(batches: list[Any], every: int = 5) -> list[Any]:
    """All targets of each fifth batch are ones that losses ignore: their mean is no number."""
    return [
        (x, torch.full_like(y, -100) if i % every == 2 else y) for i, (x, y) in enumerate(batches)
    ]


def model(seed: int = 0, *, dropout: float = 0.0, norm: bool = False) -> nn.Module:
    torch.manual_seed(seed)
    middle: list[nn.Module] = [nn.BatchNorm1d(16)] if norm else []
    return nn.Sequential(
        nn.Linear(8, 16), *middle, nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, CLASSES)
    )


def deep(seed: int = 0) -> nn.Module:
    """One with two matrices between its first and its last layer."""
    torch.manual_seed(seed)
    middle = [layer for _ in range(2) for layer in (nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.1))]
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), *middle, nn.Linear(16, CLASSES))


def own_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """One that does not tell the loss of each target."""
    return F.cross_entropy(outputs, targets)


def size_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A second task of the same outputs."""
    return (outputs.logsumexp(1) - 1.0).square().mean()


def images(count: int = 96, side: int = 32, seed: int = 0) -> list[Any]:
    """Ready batches of noisy images of three coarse patterns."""
    chance = torch.Generator().manual_seed(seed)
    wave = torch.sin(torch.arange(side) * (2 * torch.pi / side))
    patterns = torch.stack([wave.expand(side, side), wave.expand(side, side).T, wave.outer(wave)])
    y = torch.randint(CLASSES, (count,), generator=chance)
    x = 0.3 * patterns[y] + torch.randn(count, side, side, generator=chance)
    return list(zip(x.unsqueeze(1).split(12), y.split(12), strict=True))


def convolutional(seed: int = 0) -> nn.Module:
    """Takes images of any size."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )


def tokens(count: int = 96, length: int = 64, seed: int = 0) -> list[Any]:
    """Ready batches of chains of eight symbols and of the next one of each, whose odds are fixed."""
    chance = torch.Generator().manual_seed(seed)
    odds = torch.rand(8, 8, generator=torch.Generator().manual_seed(7)) ** 4
    steps = [torch.randint(8, (count,), generator=chance)]
    for _ in range(length):
        steps.append(torch.multinomial(odds[steps[-1]], 1, generator=chance)[:, 0])
    chain = torch.stack(steps, 1)
    return list(zip(chain[:, :-1].split(12), chain[:, 1:].split(12), strict=True))


class Reader(nn.Module):
    """Tells the next symbol at each place: [N, T] -> [N, T, 8]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(8, 16)
        self.memory = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.memory(self.embedding(x))[0])
        return found


def token_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def suited(name: str) -> dict[str, Any]:
    """A training that a strategy of that name can be used on."""
    if name in ("repeat_factor", "loss_sampling", "subset"):
        return {"train": points(), "valid": points(120, seed=1), "batch_size": 24}
    if name == "quantization_aware":
        pytest.importorskip("torchao")
        return {"model": deep()}
    if name in ("batch_size", "batch_warmup"):
        return {"train": points(), "valid": points(120, seed=1), "batch_size": 24}
    if name in ("progressive_resizing", "channels_last"):
        return {"model": convolutional(), "train": images(), "valid": images(seed=1)}
    if name == "sequence_length":
        return {
            "model": Reader(),
            "train": tokens(),
            "valid": tokens(seed=1),
            "loss": token_loss,
            "metric": None,
        }
    if name == "muon":
        return {"model": deep()}
    if name == "task_curriculum":
        return {"loss": {"class": F.cross_entropy, "size": size_loss}}
    return {"model": model(dropout=0.3, norm=True)}


def made(name: str) -> Strategy:
    """A strategy that is given what it asks for."""
    if name == "target":
        return Target(0.5)
    if name == "repeat_factor":
        return RepeatFactor(0.5)
    if name == "transfer":
        weights = model(seed=5, norm=True).state_dict()
        return Transfer({n: w for n, w in weights.items() if not n.startswith("4.")})
    return STRATEGIES[name]()


class Stop:
    """Raises in the middle of a step, as a crash would; until then no checkpoint is left out because one
    is being written.
    """

    def __init__(self, at: int) -> None:
        self.at = at

    def gradients(self, run: Run) -> None:
        assert run.checkpoints is not None
        run.checkpoints.wait()
        if run.step == self.at:
            raise KeyboardInterrupt


class Size:
    """Of a Loader's batches at the end of a training."""

    samples = 0

    def end(self, run: Run) -> None:
        self.samples = run.train.source.batch_size


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.argmax(1) == targets).float().mean()


def trainer(**given: Any) -> Trainer:
    """A Trainer of ready batches, one_cycle at a rate that suits them unless told otherwise."""
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
    """Whether two nests hold the same bits; one not-a-number is like another."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other) and one.dtype == other.dtype
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other or (one != one and other != other))


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


class Begun:
    """The step that a training goes on from: one that begins anew ends with the same bits too."""

    def __init__(self) -> None:
        self.step = 0

    def begin(self, run: Run) -> None:
        self.step = run.step


def goes_on_exactly(go: Callable[..., Result], folder: Path, at: int, whole: Result) -> Result:
    """Assert that a training cut off at that step goes on from there, and ends as ``whole`` did.

    ``go`` trains with checkpoints in a folder; it takes more callbacks. Returns the result.
    """
    with pytest.raises(KeyboardInterrupt):
        go(folder, callbacks=[Stop(at)])
    begun = Begun()
    again = go(folder, callbacks=[begun])
    assert 0 < begun.step <= at, "it did not go on"
    assert same(dict(again.weights), dict(whole.weights))
    rows = [[(r.step, r.train_loss, r.metric, r.rate) for r in x.history] for x in (again, whole)]
    assert same(*rows)
    return again
