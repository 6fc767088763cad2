"""What a watcher saw, as it is written down."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from outpace.measure import sampler
from outpace.measure.arms import Contest
from outpace.measure.collect import _calls, _fixed_cost, _loss, ended
from outpace.measure.found import Found
from outpace.measure.statistics import Line
from outpace.records.evidence import Sync
from outpace.seams.host import Host
from outpace.seams.setup import AS_IS, Setup
from outpace.seams.transfer import SYNCS, TRANSFERS, TransferSeam


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


def test_what_comes_after_the_last_step_is_in_none() -> None:
    """As figures that are drawn of it; not the model's calls, which are what they are."""

    def at(line: int, phase: str = "elsewhere") -> sampler.Line:
        return sampler.Line(phase, "train.py", "f", (("train.py", "f", line),))

    samples = Counter({at(3): 40, at(9): 30, at(12): 2, at(5, "forward"): 8})
    since = Counter({at(9): 30, at(12): 1, at(5, "forward"): 3})
    found = {at(3): 40, at(9, "ending"): 30, at(12): 1, at(12, "ending"): 1, at(5, "forward"): 8}
    assert ended(samples, since) == found
    assert ended(samples, Counter({at(20): 1})) == samples


def test_what_no_batch_changes_is_a_share_of_the_step() -> None:
    """Called alone the model takes 3 ms, 2 of them for any batch; in the step it took 6, its optimizer 2."""
    line = Line(1e-3, intercept=2e-3, intercept_low=1e-3, intercept_high=math.inf)
    facts = {"forward_s": 2e-3, "backward_s": 4e-3, "optimizer_s": 2e-3}
    fixed = _fixed_cost([], Found(by_batch=line), facts, 0.06)["fixed"]
    assert fixed == pytest.approx((0.75, 0.5, 1.0))
    assert _fixed_cost([], Found(), facts, 0.0) == {}


def test_a_share_that_may_be_all_or_nothing_is_none() -> None:
    """As of one pair of rounds each: what calls cost is told by their number."""
    line = Line(1e-3, intercept=2e-3, intercept_low=-1e-3, intercept_high=math.inf)
    facts = {"forward_s": 2e-3, "backward_s": 4e-3, "optimizer_s": 0.0}
    assert _fixed_cost([], Found(by_batch=line), facts, 0.06) == {}


def by_scale(fixed_s: float, for_each_s: float) -> Contest:
    """Half and twice a batch against one."""
    scales = {"input_free": 1.0, "batch_half": 0.5, "batch_double": 2.0}
    arms = {name: Setup(free_input=True, batch_scale=scale) for name, scale in scales.items()}
    contest = Contest(arms, 1.0)
    for name, scale in list(scales.items())[1:]:
        pair = (fixed_s + for_each_s, fixed_s + for_each_s * scale, 0.0, 0.0)
        contest.pairs[name] = [pair] * 4
    return contest


@pytest.mark.parametrize("beside_s", [0.0, 0.06])
def test_what_a_step_does_beside_computing_is_no_fixed_cost_of_it(beside_s: float) -> None:
    """Computing takes 2 ms for any batch and 6 for this one; a step sleeps for as long as it will."""
    contest = by_scale(beside_s + 2e-3, 6e-3)
    facts = {"forward_s": 3e-3, "backward_s": 4e-3, "optimizer_s": 1e-3}
    fixed = _fixed_cost([contest], Found(), facts, beside_s)["fixed"]
    assert fixed == pytest.approx((0.25, 0.25, 0.25))
    assert _fixed_cost([contest], Found(), facts, beside_s + 1.0) == {}


def test_times_of_another_contest_tell_nothing_of_a_fixed_cost() -> None:
    """The machine was half as fast then."""
    before = Contest({"as_is": AS_IS, "input_free": Setup(free_input=True)}, 1.0)
    before.pairs["input_free"] = [(20e-3, 16e-3, 0.0, 0.0)] * 8
    facts = {"forward_s": 3e-3, "backward_s": 4e-3, "optimizer_s": 1e-3}
    fixed = _fixed_cost([before, by_scale(2e-3, 6e-3)], Found(), facts, 0.0)["fixed"]
    assert fixed == pytest.approx((0.25, 0.25, 0.25))


def test_copies_to_the_device_and_waits_for_it_are_told_apart() -> None:
    host = Host()
    seam = TransferSeam(host)
    host.seams["transfer"], host.steps = seam, 10
    seam.counts = {"to": 20, "item": 10, "cuda": 0}
    seam.seconds = {"to": 4_000_000, "item": 1_000_000, "cuda": 0}
    seam.places = {"to": {"train.py:7": 19, "train.py:3": 1}, "item": {"train.py:9": 10}}
    assert _calls(host, TRANSFERS) == (Sync("to", 2.0, 4e-4, "train.py:7"),)
    assert _calls(host, SYNCS) == (Sync("item", 1.0, 1e-4, "train.py:9"),)
