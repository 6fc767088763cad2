"""Short paired trainings: they leave nothing behind, are alike but for what is compared, and tell luck
from gain.
"""

from __future__ import annotations

import copy
import math
import random
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from outpace.errors import UsageError
from outpace.measure.generators import random_states
from outpace.serve.loader import Loader
from outpace.train import climb, data
from outpace.train.clock import Clock
from outpace.train.data import Batches
from outpace.train.objective import Objective
from outpace.train.run import Run
from outpace.train.strategies import (
    ClassWeights,
    Ema,
    Focal,
    LrFinder,
    Lsuv,
    OneCycle,
    RepeatFactor,
    Strategy,
    lr_finder,
)
from outpace.train.trials import Parts, Purse, Trials, Variant, verdict
from tests.train.toys import Slow, Time, accuracy, model, points, ready, same

CPU = torch.device("cpu")


class Still(Strategy):
    """Learns nothing."""

    name = "still"

    def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor:
        return loss * 0.0


class Orders(Strategy):
    """Notes what it is trained on, and from which weights."""

    name = "orders"

    def __init__(self) -> None:
        self.seen: list[float] = []

    def __deepcopy__(self, memo: Any) -> Orders:
        return self

    def begin(self, run: Run) -> None:
        self.seen.append(float(sum(p.detach().sum() for p in run.module.parameters())))

    def batch(self, run: Run, batch: Any) -> None:
        self.seen.append(float(batch[0].sum()))


class Ticking:
    """A loss whose steps take the time's seconds, and without gradients a third of them."""

    def __init__(self, time: Time, seconds: float = 1.0) -> None:
        self.time, self.seconds, self.steps = time, seconds, 0

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.steps += torch.is_grad_enabled()
        self.time.s += self.seconds if torch.is_grad_enabled() else self.seconds / 3
        return F.cross_entropy(outputs, targets)


def trials(steps: int = 40, **given: Any) -> Trials:
    time = given.pop("time", Time())
    seconds, most = given.pop("seconds", math.inf), given.pop("most", math.inf)
    total = given.pop("total", None)
    clock = Clock(None, None, time)
    settings: dict[str, Any] = {
        "module": model(),
        "objective": Objective(given.pop("loss", F.cross_entropy), accuracy),
        "optimizer": None,
        "train": Batches(ready(), CPU),
        "valid": Batches(ready(120, seed=1), CPU),
        **given,
    }
    parts = Parts(**settings, clock=clock, total=total)
    return Trials(parts, steps=steps, total=total, purse=Purse(clock.read, seconds, most))


def at(rate: float, *strategies: Strategy, name: str = "") -> Variant:
    return Variant(name or f"rate {rate:g}", (OneCycle(), *strategies), rate)


@pytest.mark.parametrize("way", ["batches", "Loader", "DataLoader"])
@pytest.mark.parametrize("given", [False, True])
def test_they_leave_all_as_it_was(way: str, given: bool) -> None:
    data = TensorDataset(*points())
    source = {
        "batches": ready(),
        "Loader": Loader(data, 24, executor="none"),
        "DataLoader": DataLoader(data, 24, shuffle=True),
    }[way]
    net = model(dropout=0.2, norm=True)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9) if given else None
    train = Batches(source, CPU)

    def state() -> Any:
        return copy.deepcopy(
            {
                "model": dict(net.state_dict()),
                "optimizer": optimizer.state_dict() if optimizer else {},
                "random": random_states(),
                "data": train.state_dict(),
                "training": [m.training for m in net.modules()],
                "gradients": [p.grad is None for p in net.parameters()],
            }
        )

    before = state()
    found = trials(module=net, optimizer=optimizer, train=train)
    base = at(0.03, Ema())
    found.rate_of(base)
    found.contest(base, [(at(0.1, Lsuv()), "")])
    assert found.ended
    assert same(state(), before)


def test_the_rate_is_judged_by_batches_that_it_was_not_tried_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[Any] = []
    tries = lr_finder.climb

    def noted(copies: Any, loss_of: Any, batches: Any, *more: Any, **named: Any) -> Any:
        looked.append(batches)
        return tries(copies, loss_of, batches, *more, **named)

    monkeypatch.setattr(lr_finder, "climb", noted)
    trials().rate_of(at(0.03))
    ((learnt, held),) = looked
    assert not {x.data_ptr() for x, _ in learnt} & {x.data_ptr() for x, _ in held}


def test_all_see_the_same_batches_from_the_same_weights() -> None:
    one, two = Orders(), Orders()
    found = trials()
    found.contest(at(0.03, one, name="one"), [(at(0.1, two, name="two"), "")])
    assert len(one.seen) >= 2 * 41
    assert one.seen == two.seen
    assert one.seen[:41] != one.seen[41:82]


def test_a_rate_ten_times_too_small_loses_and_a_strategy_that_learns_nothing_too() -> None:
    found = trials(steps=60)
    base = at(0.003)
    better, worse, equal = found.contest(
        base,
        [(at(0.03), "too small"), (at(0.003, Still(), name="still"), ""), (at(0.00301), "")],
    )
    assert better.better
    assert better.cost < better.base
    assert "rate 0.03 against rate 0.003 (too small)" in better.told()
    assert better.told().endswith("better, taken")
    assert (worse.verdict, worse.seeds) == ("worse", 1)
    assert worse.told().endswith("worse, left out")
    assert not equal.better


def test_the_loss_of_one_is_not_learnt_from_by_the_next() -> None:
    alone, after = trials(), trials()
    after.trained(at(0.03, Focal(), name="focal"), 0)
    assert after.trained(at(0.03), 0).loss == alone.trained(at(0.03), 0).loss


def test_it_ends_as_soon_as_it_is_clear() -> None:
    loss = Ticking(Time())
    found = trials(steps=60, loss=loss)
    (tried,) = found.contest(at(0.0003), [(at(0.03), "")])
    assert tried.better
    assert tried.seeds == 2
    assert loss.steps == 4 * 60
    (again,) = found.contest(at(0.03), [(at(0.0001), "")])  # what is known is not trained again
    assert again.verdict == "worse"
    assert loss.steps == 5 * 60


def test_what_is_known_of_one_is_not_taken_for_another_of_its_name() -> None:
    found, base = trials(steps=60), at(0.003)
    (learns,) = found.contest(base, [(at(0.03, name="new"), "")])
    (still,) = found.contest(base, [(at(0.03, Still(), name="new"), "")])
    assert (learns.verdict, still.verdict) == ("better", "worse")


def test_what_fails_is_told_and_left_out() -> None:
    class Broken(Strategy):
        name = "broken"

        def begin(self, run: Run) -> None:
            raise RuntimeError("not on this model")

    (tried,) = trials().contest(at(0.03), [(at(0.03, Broken(), name="broken"), "a reason")])
    assert not tried.better
    assert tried.told() == "tried broken (a reason): not on this model"


def test_cheaper_steps_are_more_of_them_in_the_same_time() -> None:
    class Half(Strategy):
        """Each step takes half of the time."""

        name = "half"

        def begin(self, run: Run) -> None:
            loss.seconds = 0.5
            counts.append(0)

        def step_end(self, run: Run) -> None:
            counts[-1] += 1

        def end(self, run: Run) -> None:
            loss.seconds = 1.0

    time, counts = Time(), list[int]()
    loss = Ticking(time)
    found = trials(steps=40, loss=loss, time=time)
    half = at(0.001, Half(), name="half")._replace(timed=True)
    (tried,) = found.contest(at(0.001), [(half, "")])
    assert tried.better
    assert len(counts) == tried.seeds
    assert set(counts) <= {79, 80}


@pytest.mark.parametrize("steps", [90.0, 130.0, 250.0])
def test_no_more_is_spent_than_there_is(steps: float) -> None:
    time = Time()
    loss = Ticking(time)
    rivals = [(at(0.03), ""), (at(0.04), "")]
    trials(steps=40, loss=loss, most=steps).contest(at(0.02), rivals)
    assert loss.steps <= steps
    time = Time()
    loss = Ticking(time)
    found = trials(steps=40, loss=loss, time=time, seconds=steps)
    found.step_s = 1.0
    began = time.s
    found.contest(at(0.02), rivals)
    assert time.s - began <= steps
    assert (loss.steps > 0) == (steps > 3 * 41 * 1.2)


def test_a_variant_that_draws_others_does_not_change_the_data() -> None:
    x, y = points()
    y = torch.where(torch.rand(240, generator=torch.Generator().manual_seed(0)) < 0.9, 0, y)
    loader = Loader(TensorDataset(x, y), 24, executor="none")
    order = loader.order
    found = trials(train=Batches(loader, CPU))
    repeated = at(0.03, RepeatFactor(), name="repeat_factor")._replace(by_metric=True)
    (tried,) = found.contest(at(0.03), [(repeated, "")])
    assert tried.seeds
    assert tried.cost is not None
    assert 0.0 <= tried.cost <= 1.0, "the accuracy that it came to"
    assert loader.order is order

    def rare(batches: list[Any]) -> float:
        return float(torch.cat([batch[1] for batch in batches]).ne(0).float().mean())

    assert rare(found.resampled[repeated.arm]) > 1.5 * rare(found.batches)


@pytest.mark.parametrize("valid", [None, "many"])
def test_a_variant_that_draws_others_does_not_learn_from_what_it_is_judged_by(valid: Any) -> None:
    x, y = points()
    y = torch.where(torch.rand(240, generator=torch.Generator().manual_seed(0)) < 0.9, 0, y)
    loader = Loader(TensorDataset(x, y), 6, executor="none")
    judged_by = None if valid is None else Batches(ready(4800, seed=1), CPU)
    found = trials(20, train=Batches(loader, CPU), valid=judged_by)
    repeated = at(0.03, RepeatFactor(), name="repeat_factor")._replace(by_metric=True)
    found.contest(at(0.03), [(repeated, "")])

    def rows(batches: list[Any]) -> set[tuple[float, ...]]:
        return {tuple(row) for x, _ in batches for row in x.tolist()}

    assert rows(found.held_out)
    assert not rows(found.held_out) & rows(found.batches)
    assert not rows(found.held_out) & rows(found.resampled[repeated.arm])


def test_what_strategies_look_at_is_not_drawn_again() -> None:
    """It may take longer than all that trials are given."""
    time = Time()
    found = trials(train=Batches(Slow(ready(4800), time, 1.0), CPU))
    began = time.s
    weighted = at(0.03, ClassWeights(), name="class_weights")._replace(by_metric=True)
    (tried,) = found.contest(at(0.03), [(weighted, "")])
    assert tried.seeds
    assert time.s == began


def test_a_long_validation_is_not_used_in_part() -> None:
    """Its first batches may all be of one class."""
    valid = Batches(ready(2400, seed=1), CPU)
    found = trials(valid=valid)
    both = [*found.batches, *found.held_out]
    assert len(both) == len(ready())
    assert len({id(batch) for batch in both}) == len(both)
    assert trials(valid=Batches(ready(120, seed=1), CPU)).batches != found.batches


def test_a_few_batches_are_looked_at_however_large_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data, "HELD_BYTES", 1)
    found = trials(valid=None)
    assert (len(found.batches), len(found.held_out)) == (3, 1)
    with pytest.raises(UsageError, match="an epoch has too few batches to hold some out"):
        trials(train=Batches(ready(72), CPU), valid=None)


def test_rates_are_raised_for_short_trials() -> None:
    assert trials(steps=40, total=4000).horizon == pytest.approx(100**0.32)
    assert trials(steps=40).horizon == 1.0


def test_a_rate_is_paid_with_the_judging_that_it_takes() -> None:
    found = trials(total=4000)
    before = found.purse.paid
    found.rate_of(at(0.03))
    made = found.finder.made
    assert made is not None
    assert found.purse.paid - before == lr_finder.cost(made.steps, len(made.points))


def test_a_rate_is_found_as_the_finder_at_hand_does() -> None:
    found = trials(total=4000)
    given = found.finder = LrFinder(steps=24)
    found.rate_of(at(0.03))
    assert given.made is None
    assert found.finder.made is not None
    assert found.finder.made.steps == 24


@pytest.mark.parametrize("limit", ["most", "seconds"])
def test_a_rate_costs_no_more_than_trials_have_left(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(climb, "wanted", lambda tried, before: -len(tried))
    time = Time()
    found = trials(total=4000, loss=Ticking(time), time=time, **{limit: 100.0})
    began = time.s
    found.rate_of(at(0.03))
    assert found.finder.made is not None
    assert 1 < len(found.finder.made.points) < 6
    assert time.s - began < 100.0
    assert found.purse.paid <= 100.0


def test_rates_that_strategies_set_are_raised_too() -> None:
    class Peak(Strategy):
        name = "peak"

        def __deepcopy__(self, memo: Any) -> Peak:
            return self

        def step_end(self, run: Run) -> None:
            peaks.append(run.rates.peak)

    found, peaks = trials(), list[float]()
    for variant in (Variant("given", (OneCycle(0.01), Peak())), at(0.01, Peak())):
        peaks.clear()
        found.trained(variant._replace(raised=2.0), 0)
        assert set(peaks) == {0.02}


# --- better, or luck? ------------------------------------------------------------------------


def decided(gain: float, noise: float, seeds: int, chance: random.Random) -> bool:
    """As contest decides; a cost of 1 of 2 is left."""
    costs: list[tuple[float, float]] = []
    for _ in range(seeds):
        costs.append((1.0, 1.0 - gain - chance.gauss(0.0, noise)))
        said, _ = verdict(costs, 1.0, 2.0)
        if said != "open":
            return said == "better"
    return False


@pytest.mark.parametrize("noise", [0.003, 0.01, 0.05, 0.2])
def test_luck_is_seldom_taken_for_gain(noise: float) -> None:
    chance = random.Random(0)
    assert sum(decided(0.0, noise, 4, chance) for _ in range(500)) < 0.2 * 500
    assert sum(decided(-noise, noise, 4, chance) for _ in range(500)) < 0.02 * 500


def test_a_clear_gain_is_seen() -> None:
    chance = random.Random(0)
    assert sum(decided(0.1, 0.02, 4, chance) for _ in range(300)) > 0.9 * 300


def test_a_loss_that_is_lost_decides() -> None:
    assert verdict([(1.0, math.inf)], 1.0, 2.0)[0] == "worse"
    assert verdict([(math.inf, 1.0)], -math.inf, 2.0)[0] == "open"
    assert verdict([(math.inf, 1.0), (1.0, 1.0)], -math.inf, 2.0)[0] == "better"


def test_what_each_took_is_told() -> None:
    time = Time()
    found = trials(steps=20, loss=Ticking(time), time=time)
    with_base, alone = found.contest(at(0.02), [(at(0.03), ""), (at(0.04), "")], seeds=1)
    assert with_base.seconds == pytest.approx(2 * alone.seconds)


def test_a_validation_that_takes_too_long_is_given_up() -> None:
    time = Time()
    valid = Batches(Slow(ready(120, seed=1), time, 3.0), CPU)
    found = trials(valid=valid, time=time, seconds=20.0)
    assert time.s < 100.0 + 3 * 3.0
    both = [*found.batches, *found.held_out]
    assert len({id(batch) for batch in both}) == len(both)
