"""What a workload is, and where its data are kept.

All data are four tensors: inputs and targets to learn from, and those to validate on. They are made
once from what a package ships and kept, so that a process starts at once.
"""

import hashlib
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

HERE = Path(__file__).resolve().parent
NAMES = (
    *("mnist", "shakespeare", "cmudict", "diamonds"),
    *("flights", "denoising", "names", "mnist1d"),
)
TINY = "tiny"
"""for tests"""
VALID_BATCH = 256
Split = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class Metric(Protocol):
    """What a model is judged by, over all batches that it is shown."""

    def reset(self) -> None:
        """Forget."""

    def update(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        """A batch."""

    def compute(self) -> float:
        """Over all since `reset`."""


@dataclass(frozen=True)
class Workload:
    """``every``: steps from a validation to the next; ``steps``: of the plain script by which the
    target is set; ``budget_s``: what all contenders get, about as long as these take on two cores.
    """

    title: str
    data: Callable[[], Split]
    model: Callable[[], torch.nn.Module]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    metric: Callable[[], Metric]
    measure: str
    """what the metric is, with its unit"""
    larger: bool
    """the better"""
    batch: int
    every: int
    steps: int
    budget_s: float
    source: str
    """package and licence of the data"""


def load(name: str) -> Workload:
    """A workload by the name of its file."""
    found: Workload = importlib.import_module(f"workloads.{name}").WORKLOAD
    return found


def split_of(name: str, folder: Path) -> Split:
    """The data, made if they are not there yet."""
    code = hashlib.sha256((HERE / "workloads" / f"{name}.py").read_bytes()).hexdigest()[:8]
    path = folder / f"{name}-{code}.pt"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        torch.save(tuple(tensor.contiguous() for tensor in load(name).data()), part)
        part.replace(path)
    found: Split = torch.load(path, weights_only=True)
    return found


def shipped(package: str, *parts: str) -> Path:
    """A file of a package. It is not imported: that may take long, or need what is not there."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"no package {package}")
    return Path(spec.submodule_search_locations[0], *parts)


def held_out(x: torch.Tensor, y: torch.Tensor, count: int) -> Split:
    """Some rows at random for validation, the same ones each time."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, valid = order[count:], order[:count]
    return x[train], y[train], x[valid], y[valid]


class Ready:
    """Batches to validate on, the same for all contenders."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.batches = list(zip(*(each.split(VALID_BATCH) for each in tensors), strict=True))

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


def judged(model: torch.nn.Module, metric: Metric, batches: Iterable[Any]) -> float:
    """The metric of a model, which is left in training."""
    model.eval()
    metric.reset()
    with torch.no_grad():
        for x, y in batches:
            metric.update(model(x), y)
    model.train()
    return metric.compute()
