"""What probes find, on its way into the evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from outpace.measure.by_hand import Place, Update
from outpace.measure.frozen import Frozen
from outpace.measure.health import HealthWatch
from outpace.measure.statistics import Line
from outpace.records.input import Images
from outpace.records.memory import Memory


@dataclass
class Found:
    """What probes found, to be joined with what was watched."""

    input: dict[str, Any] = field(default_factory=dict)
    made_sooner_s: float = 0.0
    """each batch in later epochs than the one that was watched"""
    images: Images | None = None
    compute: dict[str, Any] = field(default_factory=dict)
    counted_calls: int = 0
    """of models, to learn, in the step whose operators were counted"""
    frozen: Frozen | None = None
    by_batch: Line | None = None
    """seconds of a forward and backward pass over the part of the batch"""
    by_hand: Update | None = None
    loss_lines: set[Place] = field(default_factory=set)
    """that compute the loss, beside the model's call"""
    memory: Memory = field(default_factory=Memory)
    health: HealthWatch | None = None
    others_cores: float = 0.0
    notes: list[str] = field(default_factory=list)
