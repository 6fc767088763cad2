"""How good and how large a model is, and what a compressed one has lost against it."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn

from outpace.errors import UsageError
from outpace.seams.batch import batch_size
from outpace.train.compress.cost import file_bytes
from outpace.train.compress.result import Cost
from outpace.train.data import Batches
from outpace.train.objective import Objective

Loss = Callable[[nn.Module], torch.Tensor]
REGAINED = 4.0
"""times as much as is allowed in the end that may be lost before a model is tuned"""
ROUNDING = 1e-6
"""of a metric"""


@final
class Judge:
    """The metric of a model on ``data``: ``metric(outputs, targets)`` or ``metric(model, batch)``, a
    mean over samples, or an object with update, compute and reset.
    """

    def __init__(self, metric: Any, data: Batches) -> None:
        self.gathers = hasattr(metric, "update")
        self.objective = Objective(_nothing, metric) if self.gathers else Objective(metric)
        self.objective.to(data.device)
        self.data = data
        self.samples = 0

    def __call__(self, model: nn.Module) -> float:
        """Of a model in eval mode."""
        with torch.no_grad():
            found = self.objective.judge(model, self.data.epoch())
        self.samples = found.samples
        if found.metric is not None:
            return found.metric
        return math.nan if found.untold else found.loss  # of fewer batches it compares with nothing


@dataclass
class Judging:
    """``valid`` judges what was made, ``scan`` is what shares are chosen by, both against what the
    ``original`` gave. ``sign``: 1 where a larger metric is better, else -1. ``args``, ``kwargs``: what
    the model is called with for a batch. ``losses``: of some batches; None: no loss was given; what they
    leave in the user's loss is put back by ``kept``. ``tune`` trains a model for a while.
    """

    valid: Judge
    scan: Judge
    original: nn.Module
    sign: float
    losses: list[Loss] | None = None
    tune: Callable[[nn.Module], Any] | None = None
    kept: Callable[[], AbstractContextManager[None]] = nullcontext

    def __post_init__(self) -> None:
        self.args, self.kwargs, self.batch = example(self.original, self.valid)
        self.metric = self.valid(self.original)
        self.scanned = self.metric if self.scan is self.valid else self.scan(self.original)
        if not (math.isfinite(self.metric) and math.isfinite(self.scanned)):
            where = "" if not math.isfinite(self.metric) else " on scan="
            raise UsageError(
                f"the metric of the given model{where} is not a finite number",
                "look at its weights",
            )

    def call(self, model: nn.Module) -> Any:
        """What a model makes of a batch."""
        return model(*self.args, **self.kwargs)

    @property
    def certain(self) -> bool:
        """Whether what a scan finds is what is judged."""
        return self.scan is self.valid and self.tune is None

    @property
    def slack(self) -> float:
        """By how much two metrics may differ that are the same: means in float32 are not exact."""
        return ROUNDING * max(abs(self.metric), abs(self.scanned))

    def scannable(self, allowed: float) -> float:
        """What a scan may lose where so much is allowed in the end, the slack included."""
        return (allowed if self.tune is None else REGAINED * allowed) + self.slack

    def tuned(self, model: nn.Module) -> None:
        """Train a model for a while, where there is a way to."""
        if self.tune is not None:
            device = next((p.device for p in model.parameters()), None)
            model.train()
            self.tune(model)
            model.eval()
            if device is not None:
                model.to(device)

    def fall(self, model: nn.Module) -> float:
        """By how much the metric is worse than the original's, on the data of the scan."""
        return self.lost(self.scanned, self.scan(model))

    def lost(self, before: float, after: float) -> float:
        """By how much ``after`` is worse."""
        return math.inf if math.isnan(after) else self.sign * (before - after)

    def cost(self, model: nn.Module) -> Cost:
        """Bytes and metric."""
        return Cost(*file_bytes(model), metric=self.valid(model))


def example(model: nn.Module, judge: Judge) -> tuple[tuple[Any, ...], dict[str, Any], int]:
    """What a model is called with for the first batch, and that batch's samples."""
    batches = judge.data.peek(1)
    if not batches:
        raise UsageError("there is nothing to validate on", "valid= gives no batch")
    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def look(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append((args, kwargs))

    handle = model.register_forward_pre_hook(look, with_kwargs=True)
    try:
        with torch.no_grad():
            judge.objective.judged(model, batches[0])
    finally:
        handle.remove()
    if not seen:
        raise UsageError(
            "the metric does not call the model itself", "have it call model(inputs), as users do"
        )
    return *seen[0], batch_size(batches[0])


def _nothing(outputs: Any, targets: Any) -> torch.Tensor:
    return torch.zeros(())
