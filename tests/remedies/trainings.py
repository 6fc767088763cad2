"""Small trainings as people write them, and a host around them."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

from outpace.seams.host import Host
from outpace.seams.loader import LoaderSeam
from outpace.seams.setup import AS_IS, Setup
from outpace.tune.assemble import assemble

EPOCHS = 2


@dataclass
class Result:
    """What a training gave."""

    losses: list[float]
    validation: list[float]
    weights: dict[str, torch.Tensor]

    def equals(self, other: Result) -> bool:
        """Bit for bit."""
        return (
            self.losses == other.losses
            and self.validation == other.validation
            and all(torch.equal(self.weights[k], other.weights[k]) for k in self.weights)
        )


class Rows(Dataset[Any]):
    """Rows of numbers, which can be sliced."""

    def __init__(self, count: int) -> None:
        maker = np.random.default_rng(0)
        self.x = maker.normal(size=(count, 9)).astype(np.float32)
        self.y = (self.x.sum(axis=1) > 0).astype(np.int64)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: Any) -> Any:
        return torch.tensor(self.x[index]), torch.tensor(self.y[index])


class Pictures(Dataset[Any]):
    """JPEG files, cropped and flipped at random for training."""

    def __init__(self, files: list[Path], *, augment: bool) -> None:
        self.files = files
        self.augment = augment

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        image = Image.open(self.files[index]).convert("RGB")
        if self.augment:
            left, top = random.randint(0, 8), random.randint(0, 8)
            image = image.crop((left, top, left + 32, top + 32))
        image = image.resize((16, 16))
        pixels = np.asarray(image, dtype=np.float32) / 255
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy()), index % 3


class Convolutions(nn.Module):
    """Blocks with batch norm, and a head after dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(*[Block() for _ in range(2)])
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.blocks(F.relu(self.stem(x))).mean(dim=(2, 3))))


class Block(nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.mix = nn.Conv2d(8, 8, 1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.relu(self.norm(self.mix(self.conv(x))))


def perceptron() -> nn.Module:
    """Layers with dropout."""
    return nn.Sequential(
        nn.Linear(9, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)
    )


OnStep = Callable[[int, nn.Module, torch.optim.Optimizer], None]


def train(kind: str, folder: Path, on_step: OnStep | None = None) -> Result:
    """Train for two epochs, with validation; ``on_step`` is called after each step."""
    random.seed(3)
    torch.manual_seed(3)
    loader, check, model, optimizer = MAKERS[kind](folder)
    losses: list[float] = []
    validation: list[float] = []
    for _ in range(EPOCHS):
        model.train()
        for x, y in loader:
            optimizer.zero_grad(set_to_none=kind != "rows")
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if on_step is not None:
                on_step(len(losses), model, optimizer)
        model.eval()
        with torch.no_grad():
            total = sum(F.cross_entropy(model(x), y).item() for x, y in check)
        validation.append(total / len(check))
    return Result(losses, validation, {k: v.clone() for k, v in model.state_dict().items()})


def rows(folder: Path, workers: int = 0) -> Any:
    """A table of numbers and a perceptron."""
    loader = DataLoader(Rows(186), batch_size=32, shuffle=True, num_workers=workers)
    model = perceptron()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return loader, DataLoader(Rows(40), batch_size=32), model, optimizer


def images(folder: Path, *, augment: bool = True) -> Any:
    """Photographs and a convolutional network."""
    files = sorted(folder.glob("*.jpg"))
    loader = DataLoader(Pictures(files, augment=augment), batch_size=8, shuffle=True)
    model = Convolutions()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    return loader, DataLoader(Pictures(files[:9], augment=False), batch_size=8), model, optimizer


MAKERS: dict[str, Callable[[Path], Any]] = {
    "rows": rows,
    "workers": lambda folder: rows(folder, workers=1),
    "images": images,
    "fixed_images": lambda folder: images(folder, augment=False),
}


def make_pictures(folder: Path, count: int = 27) -> Path:
    """Some JPEG files of several sizes, one of them grey."""
    maker = np.random.default_rng(1)
    for index in range(count):
        small = maker.integers(0, 255, size=(6, 7, 3), dtype=np.uint8)
        image = Image.fromarray(small).resize((44 + index % 5, 41 + index % 3), Image.BICUBIC)
        image = image.convert("L") if index == 4 else image
        image.save(folder / f"{index:03d}.jpg", quality=90)
    return folder


@contextlib.contextmanager
def hosted(setup: Setup = AS_IS, *, switching: bool = False) -> Iterator[Host]:
    """All seams put in, with steps run as ``setup`` says."""
    hook = sys.excepthook
    host = assemble(switching=switching)
    host.install()
    try:
        host.switch(setup)
        yield host
    finally:
        host.switch(AS_IS)
        loader = host.seams["loader"]
        assert isinstance(loader, LoaderSeam)
        loader.close()
        host.remove()
        sys.excepthook = hook


def trained(kind: str, folder: Path, setup: Setup, on_step: OnStep | None = None) -> Result:
    """The training under a Setup, from outside; no seam may fail."""
    with hosted(setup) as host:
        result = train(kind, folder, on_step)
        assert not host.broken
    return result
