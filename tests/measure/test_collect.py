"""What a watcher saw, as it is written down."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from outpace.measure.collect import _fixed_cost, _loss
from outpace.measure.found import Found
from outpace.measure.statistics import Line


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


def test_what_no_batch_changes_is_a_share_of_the_step() -> None:
    """Called alone the model takes 3 ms, 2 of them for any batch; in the step it took 6, its optimizer 2."""
    line = Line(1e-3, 0.0, 2e-3, intercept=2e-3, intercept_low=1e-3, intercept_high=math.inf)
    facts = {"forward_s": 2e-3, "backward_s": 4e-3, "optimizer_s": 2e-3}
    fixed = _fixed_cost([], Found(by_batch=line), facts)["fixed"]
    assert fixed == pytest.approx((0.75, 0.5, 1.0))
    assert _fixed_cost([], Found(), facts) == {}
