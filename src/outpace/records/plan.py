"""What `outpace plan` answers."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from outpace.records.memory import ByKind

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


class Forecast(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a training ends, in seconds from its start.

    ``notes``: what was reckoned with otherwise than the script says, or could not be. ``cost``: USD that it
    may cost, where that was asked; ``usd``: that it costs, where an hour's price is known. ``steps``: that
    a script is taken to have. ``terms``: seconds by what they are for, which add up to the estimate.
    """

    finish_s: Estimate
    fits: bool
    notes: tuple[str, ...] = ()
    usd: Estimate | None = None
    price: str | None = None
    """whose price, and of when; None: the user's own"""
    cost: float | None = None
    steps: int | None = None
    steps_per_s: float | None = None
    terms: dict[str, float] = {}


Landed = Literal["linear", "cosine", "one-cycle", "plateau", "scale"]
"""how the learning rate goes down; ``scale``: as the script has it, times a line down to zero"""


class Progress(msgspec.Struct, frozen=True):
    """How far a training with a deadline is; seconds, ``finish_s`` from now on."""

    steps: int
    of: int | None
    loss: float | None
    elapsed_s: float
    left_s: float
    finish_s: Estimate | None
    landing: bool


class Option(msgspec.Struct, frozen=True):
    """A change, and what the training would take with it. ``usd``: None where no price is known."""

    change: str
    keeps: str
    hours: Estimate
    usd: Estimate | None
    how: Literal["measured", "predicted", "not measured"]
    price: str | None = None
    """whose price, and of when; None: that of an hour of this machine, as the user said"""
    scale: float | None = None
    """times the script's steps that fit the time, where that is the objective"""


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
    fresh_tokens: float
    """that they are worth, where some are seen again"""
    loss: Estimate | None
    verdict: Literal["balanced", "compute-inefficient", "data-inefficient"]
    wasted: float | None
    """share of the compute that a model of the same loss would not need"""
    wasted_usd: float | None = None
    """what that costs, where the price of a device is known"""


class StepFlops(msgspec.Struct, frozen=True):
    """Arithmetic of one step, as counted while it ran.

    ``mfu`` is the share of the peak that the model's own arithmetic reaches, ``hfu`` that of all that
    was computed, what is computed again for the backward pass included.
    """

    forward: float
    model: float
    hardware: float
    peak_per_s: float | None
    mfu: float | None
    hfu: float | None


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


class StepSize(msgspec.Struct, frozen=True):
    """Memory of a step of so many samples, in bytes, as measured.

    ``learning`` and ``optimizer`` are the most held above ``entry`` in forward and backward and in the
    optimizer's step, with what kernels took besides; ``data`` was made outside of the step. ``learnt`` is
    what the weights take that gradients are made for.
    """

    batch: int
    entry: int
    learning: int
    optimizer: int
    data: int
    learnt: int
    kinds: ByKind
    pieces: int = 0
    """what a GPU's allocator takes beside that, in pieces that it cannot use"""

    @property
    def peak(self) -> int:
        """The most held at once."""
        return self.entry + self.data + max(self.learning, self.optimizer)


class Layer(msgspec.Struct, frozen=True):
    """A part of the model, and the bytes that its forward pass keeps for the backward pass."""

    name: str
    bytes: int


class Sizes(msgspec.Struct, frozen=True):
    """What was measured of a step's memory and arithmetic; FLOPs and seconds are a step's.

    ``limit``: bytes that the device has for the step, all that it held already included; None where nothing
    tells. ``micro_steps``: batches of one step. ``dtype``: that most of its FLOPs are done in. ``may_try``:
    whether larger batches can be made, of a GPU on which nobody else is at work; ``fitted``: the largest that
    was tried, and ran; ``failed``: the smallest that did not.
    """

    device: str
    steps: tuple[StepSize, ...]
    """as the script is, with its own batch and, where that can be, with others"""
    bf16: StepSize | None
    checkpointed: StepSize | None
    layers: tuple[Layer, ...]
    flops: float
    flops_forward: float
    step_s: float
    forward_s: float
    limit: int | None = None
    micro_steps: int = 1
    dtype: str = "float32"
    may_try: bool = False
    fitted: int | None = None
    failed: int | None = None
    notes: tuple[str, ...] = ()


class Room(msgspec.Struct, frozen=True):
    """A change that takes less memory. ``time``: a step takes so many times as long; None: unknown."""

    change: str
    peak_bytes: int
    fits: bool | None
    time: float | None
    how: Literal["measured", "predicted"]


class MemoryPlan(msgspec.Struct, frozen=True):
    """Memory of a step, in bytes; ``device`` and ``limit_bytes`` where one was asked about.

    ``batch``: samples that go through the model at once, ``micro_steps`` times in a step; ``own_batch``:
    those of the script, with which it was measured. ``largest_tried``: whether the largest batch, or a larger
    one, was run.
    """

    batch: int
    own_batch: int
    micro_steps: int
    peak_bytes: int
    by_kind: ByKind
    layers: tuple[Layer, ...]
    how: Literal["measured", "predicted"]
    device: str | None
    limit_bytes: int | None
    fits: bool | None
    largest_batch: int | None
    changes: tuple[Room, ...]
    largest_tried: bool = False


class Plan(msgspec.Struct, frozen=True):
    """The answers that the question asked for; the others are left out."""

    schema: int = 1
    budget: Budget | UnsetType = UNSET
    forecast: Forecast | UnsetType = UNSET
    options: tuple[Option, ...] | UnsetType = UNSET
    law: LawName | UnsetType = UNSET
    fit: Fit | UnsetType = UNSET
    optimal: Optimal | UnsetType = UNSET
    served: Optimal | UnsetType = UNSET
    """the model of the same loss for which training and serving together cost least"""
    given: Given | UnsetType = UNSET
    flops: Flops | StepFlops | UnsetType = UNSET
    memory: MemoryPlan | UnsetType = UNSET
