"""What a watcher saw, as it is written down."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from outpace.measure.collect import _loss


@pytest.mark.parametrize(("until", "step"), [(None, 45), (11, 45), (10, None)])
def test_the_step_of_the_first_bad_loss_where_there_is_one_loss_for_some_steps(
    until: int | None, step: int | None
) -> None:
    """Counted by samples; what comes after the steps that count is left out."""
    steps = (*range(6), 13, 21, 29, 37, 45, 53)
    samples, values = [64 * (each + 1) for each in steps], [1.0] * 10 + [math.nan, math.inf]
    losses = SimpleNamespace(read=lambda: (samples, values), first_bad=lambda: 10, each=64)
    validation = SimpleNamespace(read=list)
    watcher: Any = SimpleNamespace(losses=losses, loss_until=until, validation=validation)
    assert _loss(watcher).first_bad_step == step
