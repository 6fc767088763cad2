"""What becomes of remedies once the whole recipe is compared."""

from __future__ import annotations

import pytest

from outpace.records.gain import Gain
from outpace.records.trial import Trial
from outpace.tune.trials import Trials


def accepted(name: str) -> Trial:
    gain = Gain(2.0, 1.5, 2.5, "measured")
    return Trial(name, {}, "numerics", gain, gain, True, "measured 2.00x [1.50, 2.50]")


@pytest.mark.parametrize(("speedup", "kept"), [(1.5, True), (1.0, True), (0.4, False)])
def test_a_recipe_that_measured_slower_is_none(speedup: float, kept: bool) -> None:
    """Though each of its remedies was faster when it was tried."""
    trials = Trials.__new__(Trials)
    trials.time_s, trials.begun = 60.0, 0.0
    slower = Trial("bf16", {}, "numerics", Gain(1, 1, 1), Gain(0.5, 0.4, 0.6), False, "slower")
    trials.trials, trials.final = [accepted("fused_optimizer"), slower], {}
    trials.evidence = None  # type: ignore[assignment]
    for contest in trials.compare():
        pairs = [(1.0, share / speedup, 1.0, share / speedup) for share in (0.96, 1.0, 1.04) * 4]
        contest.pairs["recipe"] = pairs
    assert [t.accepted for t in trials.trials] == [kept, False]
    assert bool(trials.final) == kept
    if not kept:
        assert "the whole recipe slower afterwards: 0.40x" in trials.trials[0].reason
        assert trials.trials[1].reason == "slower"
