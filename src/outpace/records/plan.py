"""What `outpace plan` answers."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

LawName = Literal["besiroglu", "hoffmann-1", "hoffmann-2", "hoffmann-3", "fitted"]


class Budget(msgspec.Struct, frozen=True):
    """Seconds to a deadline, and for training."""

    deadline_s: float
    reserves: dict[str, float]
    available_s: float


class Estimate(msgspec.Struct, frozen=True):
    """A figure with its limits."""

    estimate: float
    low: float
    high: float


class Forecast(msgspec.Struct, frozen=True):
    """When a training ends, in seconds from its start."""

    finish_s: Estimate
    fits: bool


class Option(msgspec.Struct, frozen=True):
    """A change, and what the training would take with it. ``usd``: None where no price is known."""

    change: str
    keeps: str
    hours: Estimate
    usd: Estimate | None
    how: Literal["measured", "predicted", "not measured"]


class Optimal(msgspec.Struct, frozen=True):
    """The model and data that a scaling law gives the least loss for a compute budget."""

    parameters: float
    tokens: float
    loss: Estimate | None
    """None: the law has none"""


class Given(msgspec.Struct, frozen=True):
    """A model and data that were asked about."""

    parameters: float
    tokens: float
    loss: Estimate | None
    verdict: Literal["balanced", "compute-inefficient", "data-inefficient"]
    wasted: float | None
    """share of the compute that a model of the same loss would not need"""


class Flops(msgspec.Struct, frozen=True):
    """A compute budget, and where it comes from."""

    total: float
    peak_per_s: float | None = None
    """of one device, dense"""
    mfu: float | None = None
    usd: float | None = None
    price: str | None = None
    """whose price, and of when"""


class Fit(msgspec.Struct, frozen=True):
    """The constants of L = E + A / N^alpha + B / D^beta, fitted to so many runs."""

    runs: int
    e: Estimate
    a: Estimate
    b: Estimate
    alpha: Estimate
    beta: Estimate


class Plan(msgspec.Struct, frozen=True):
    """The answers that the question asked for; the others are left out."""

    schema: int = 1
    budget: Budget | UnsetType = UNSET
    forecast: Forecast | UnsetType = UNSET
    options: tuple[Option, ...] | UnsetType = UNSET
    law: LawName | UnsetType = UNSET
    fit: Fit | UnsetType = UNSET
    optimal: Optimal | UnsetType = UNSET
    given: Given | UnsetType = UNSET
    flops: Flops | UnsetType = UNSET
