"""A remedy measured on top of those accepted, and the proof that quality is kept."""

from __future__ import annotations

import msgspec

from outpace.records.finding import Keeps
from outpace.records.gain import Gain

Settings = dict[str, str | int | float | bool]

NOT_TRIED = "not tried"
"""what the reason begins with of a remedy that there was no time for"""


TOO_SHORT = "the script was over before it could be"
"""why it was not, where more time would not have helped"""


class Trial(msgspec.Struct, frozen=True):
    """One remedy, tried: ``measured`` is None where it could not be tried to its end."""

    remedy: str
    settings: Settings
    keeps: Keeps
    predicted: Gain
    measured: Gain | None
    accepted: bool
    reason: str
    seconds: float = 0.0

    @property
    def was_tried(self) -> bool:
        """Whether there was time for it."""
        return not self.reason.startswith(NOT_TRIED)


class Curve(msgspec.Struct, frozen=True):
    """Loss of one run by samples seen; None where it was not a number."""

    seed: int
    recipe: bool
    samples: tuple[int, ...]
    values: tuple[float | None, ...]
    metrics: dict[str, float] = {}


NO_METRIC = (
    "the losses of models that learn against each other, or of a policy, do not tell how good they are, and "
    "the script reports no metric (outpace.log)"
)


class Proof(msgspec.Struct, frozen=True):
    """Non-inferiority of the recipe.

    ``difference`` and ``high`` are shares of the loss's fall, or of the metric that is the ``measure``;
    None where runs told nothing of it, for the ``reason``.
    """

    needed: bool
    proven: bool
    seeds: int = 0
    steps: int = 0
    margin: float = 0.01
    confidence: float = 0.95
    difference: float | None = None
    high: float | None = None
    measure: str = "loss"
    reason: str = ""
    curves: tuple[Curve, ...] = ()
    needed_s: float = 0.0
    """seconds that one of quality would take, which was not begun for want of them"""
    refuted: bool = False
    """the recipe was seen to be worse, or to be another one, which more time would not mend"""
