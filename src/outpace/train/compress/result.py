"""What compressing a model gave, way by way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from torch import nn

from outpace.records.gain import Gain

Curve = tuple[tuple[float, float], ...]
"""(share that is removed, by how much the metric falls then)"""
HEADER: tuple[str, ...] = ("way", "taken", "file", "zipped", "a call takes", "metric")


class Cost(msgspec.Struct, frozen=True):
    """``bytes`` of the file that ``torch.save(model.state_dict(), path)`` writes, ``zipped_bytes`` of
    the same file compressed; ``latency_s``: median time of a call; ``metric``: on the data to validate
    on.
    """

    bytes: int
    zipped_bytes: int
    metric: float
    latency_s: float | None = None


class Step(msgspec.Struct, frozen=True):
    """One way of compressing. ``after``: what was measured of the model that it made, also where that
    was refused; None where it made none. ``gain``: of the time of a call. ``shares``: what was removed
    of each layer, ``curves``: how the metric falls with that share, each layer alone.
    """

    way: str
    accepted: bool
    reason: str
    before: Cost
    after: Cost | None = None
    gain: Gain | None = None
    shares: dict[str, float] = {}
    curves: dict[str, Curve] = {}


@dataclass(frozen=True)
class Made:
    """A model that a way has made, and what is to be said of it."""

    model: nn.Module
    said: str
    shares: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)


@dataclass(frozen=True)
class Compressed:
    """``model``: a copy of the given one with all that was accepted, in eval mode; where nothing was,
    with the same weights. ``before``, ``after``, ``gain``: of all ways together; ``gain`` is None where
    nothing was accepted.
    """

    model: nn.Module
    steps: tuple[Step, ...]
    before: Cost
    after: Cost
    gain: Gain | None
    notes: tuple[str, ...]

    def step(self, way: str) -> Step:
        """What one way gave. Raises KeyError where it was not tried."""
        for each in self.steps:
            if each.way == way:
                return each
        raise KeyError(way)

    def as_dict(self) -> dict[str, Any]:
        """All but the model, as plain values."""
        plain = {name: value for name, value in vars(self).items() if name != "model"}
        found: dict[str, Any] = msgspec.to_builtins({"schema": 1, **plain})
        return found

    def table(self) -> str:
        """A row for each way with what was measured before and after it, and the reason below it."""
        rows = [HEADER]
        rows += [_row(s.way, _taken(s), s.before, s.after, s.gain) for s in self.steps]
        rows.append(_row("all", "", self.before, self.after, self.gain))
        widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
        reasons = ["", *(f"  {step.reason}" for step in self.steps), ""]
        told = [line for pair in zip(lines, reasons, strict=True) for line in pair if line]
        return "\n".join(line.rstrip() for line in [*told, *self.notes])


def _taken(step: Step) -> str:
    return "yes" if step.accepted else "no"


def _row(
    name: str, taken: str, before: Cost, after: Cost | None, gain: Gain | None
) -> tuple[str, ...]:
    after = after or before
    speed = f" {gain.in_words}" if gain is not None else ""
    return (
        name,
        taken,
        f"{_size(before.bytes)} -> {_size(after.bytes)}",
        f"{_size(before.zipped_bytes)} -> {_size(after.zipped_bytes)}",
        f"{_time(before.latency_s)} -> {_time(after.latency_s)}{speed}",
        f"{before.metric:.4g} -> {after.metric:.4g}",
    )


def _size(count: int) -> str:
    return f"{count / 2**20:.2f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"


def _time(seconds: float | None) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds is not None else "?"
