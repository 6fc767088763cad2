"""Short trainings at several rates: which are tried."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from outpace.plan.schedule import rate as share
from outpace.train.climb import FIRST, FIRST_ADAPTIVE, STRIDE, clear, climb, trained, wanted
from outpace.train.layers import copies_of
from outpace.train.rate import (
    APART,
    FINE,
    LONG,
    VARIED,
    Climb,
    Point,
    as_good,
    horizon,
    sound,
    suggestion,
    usual_rate,
)
from outpace.train.strategies.schedule_free import ScheduleFreeAdamW
from tests.train.toys import model, partly_ignored, points, same


def loss_of(net: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(net(batch[0]), batch[1])


def batches() -> tuple[list[tuple[torch.Tensor, ...]], list[tuple[torch.Tensor, ...]]]:
    x, y = points()
    found = list(zip(x.split(16), y.split(16), strict=True))
    return found[2:], found[:2]


def climbed(optimizer: torch.optim.Optimizer, net: nn.Module, most: int = 9) -> Climb:
    return climb(
        lambda: copies_of(net, optimizer), loss_of, batches(), 10, lambda made: made < most
    )


@given(st.floats(-8.0, 4.0))
def test_it_climbs_to_the_lowest_and_both_its_neighbours(lowest: float) -> None:
    tried: dict[int, float] = {}
    while (at := wanted(tried, 20.0)) is not None:
        assert at not in tried
        tried[at] = abs(at - lowest)
    best_at = min(tried, key=lambda at: (tried[at], at))  # of two that are equal the smaller rate
    assert {best_at - 1, best_at, best_at + 1} <= tried.keys()
    assert sorted(tried) == list(range(min(tried), max(tried) + 1))
    assert len(tried) <= abs(lowest) + 4


def test_where_all_blow_up_it_goes_down() -> None:
    tried = {0: math.inf, 1: math.inf}
    assert wanted(tried, 1.0) == -1
    assert wanted({**tried, -1: math.inf}, 1.0) == -2
    assert wanted(tried, math.inf) == -1


def test_below_one_that_failed_alone_there_may_be_better_ones() -> None:
    # A convolutional net on digits, one seed: it dies at 0.0095, and at 0.03 by chance it does not.
    losses = {0: 1.06, -1: 2.24, -2: 0.65, -3: 2.13, 1: 2.31}
    tried: dict[int, float] = {}
    while (at := wanted(tried, 2.31)) is not None:
        tried[at] = losses[at]
    assert tried.keys() == {0, -1, -2, -3}
    points = [Point(0.03 * STRIDE**at, tried[at]) for at in sorted(tried)]
    rate, _ = as_good(points[: sound([point.loss for point in points], 2.31)], 2.31)
    assert math.exp(rate) == pytest.approx(0.003, rel=0.01)
    found = suggestion(Climb(points, 2.31, 24, 0.03), 24)
    assert found is not None
    assert found.rate <= points[1].rate  # the next one failed


def test_copies_learn_and_the_first_one_does_not() -> None:
    net = model()
    adam = torch.optim.AdamW(net.parameters(), 0.1)
    before = {name: weight.clone() for name, weight in net.state_dict().items()}
    made = climbed(adam, net)
    assert same(before, dict(net.state_dict()))
    assert not adam.state
    assert min(point.loss for point in made.points) < made.before
    usual = usual_rate(net, adam)
    assert usual is not None
    first = usual * horizon(10, LONG)
    assert any(point.rate == pytest.approx(first) for point in made.points)
    assert [point.rate for point in made.points] == sorted(point.rate for point in made.points)
    assert made.points == climbed(adam, net).points  # on the same batches, by the same chance


def test_it_ends_where_it_is_told_to() -> None:
    net = model()
    sgd = torch.optim.SGD(net.parameters(), 0.1)
    assert [point.rate for point in climbed(sgd, net, most=1).points] == [FIRST]
    assert len(climbed(sgd, net, most=2).points) == 2


def test_a_rate_that_blows_up_is_worse_than_any() -> None:
    net = nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 64), nn.Linear(64, 3))
    sgd = torch.optim.SGD([{"params": net.parameters(), "lr": 1.0}], 1.0, momentum=0.9)
    made = climbed(sgd, net)
    found = suggestion(made, 10)
    assert found is not None
    assert all(math.isfinite(p.loss) for p in made.points if p.rate <= found.rate)


def test_without_matrices_it_begins_where_most_trainings_do() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :3] * self.weight

    net = Scale()
    made = climbed(torch.optim.AdamW(net.parameters()), net, most=1)
    assert [point.rate for point in made.points] == [FIRST_ADAPTIVE]
    assert made.usual is None


def test_batches_that_tell_no_loss_at_first_are_not_judged_by() -> None:
    net = model()
    adam = torch.optim.AdamW(net.parameters(), 0.1)
    learnt, held = batches()
    held = [*held, learnt.pop()]
    told = climb(lambda: copies_of(net, adam), loss_of, (learnt, held), 10, lambda made: made < 3)
    silent = partly_ignored([held[0], held[1], learnt[0], held[2]])
    made = climb(lambda: copies_of(net, adam), loss_of, (learnt, silent), 10, lambda made: made < 3)
    assert made == told
    assert math.isfinite(made.before)
    assert {len(point.parts) for point in made.points} == {3}


def test_a_batch_that_tells_no_loss_any_more_is_what_a_rate_has_done() -> None:
    net, steps = model(), [0]

    def breaking(net: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        steps[0] += torch.is_grad_enabled()
        return loss_of(net, batch) * (math.nan if steps[0] and net.training is False else 1.0)

    adam = torch.optim.AdamW(net.parameters(), 0.1)
    made = climb(lambda: copies_of(net, adam), breaking, batches(), 10, lambda made: made < 1)
    assert math.isfinite(made.before)
    assert [point.loss for point in made.points] == [math.inf]


def normed(trained: bool) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 3))
    if trained:
        nn.init.normal_(net[1].weight)
        nn.init.normal_(net[1].bias)
    return net


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_of_weights_that_were_trained_before_smaller_rates_are_tried_first(kind: Any) -> None:
    def first(net: nn.Module, **given: Any) -> Climb:
        optimizer = kind(net.parameters(), 0.1)
        return climb(
            lambda: copies_of(net, optimizer), loss_of, batches(), 10, lambda made: False, **given
        )

    new, tuned = first(normed(trained=False)), first(normed(trained=True))
    assert new.points[0].rate / tuned.points[0].rate == pytest.approx(FINE)
    assert (new.apart, tuned.apart) == (APART, VARIED)
    said = first(model(), trained_before=True)
    assert first(model()).points[0].rate / said.points[0].rate == pytest.approx(FINE)


def aimed(losses: dict[int, float], parts: tuple[float, ...] = ()) -> bool:
    tried = {
        at: Point(0.01 * STRIDE**at, loss, tuple(loss + each for each in parts))
        for at, loss in losses.items()
    }
    return clear(tried, Point(0.0, 2.0, tuple(2.0 for _ in parts)))


def test_the_usual_rate_is_clear_where_it_has_learnt_beyond_noise() -> None:
    assert aimed({0: 1.0, -1: 1.2})
    assert not aimed({0: 1.0})
    assert not aimed({0: 1.2, -1: 1.0})
    assert not aimed({0: 1.0, -1: 1.2, -2: 1.4})
    assert aimed({0: 1.9, -1: 1.92}, parts=(0.01, -0.01, 0.02, -0.02))
    assert not aimed({0: 1.9, -1: 1.92}, parts=(1.0, -1.0, 2.0, -2.0))
    assert not aimed({0: 1.8, -1: 1.95}), "both are too small"


def test_under_a_target_no_larger_rate_is_tried_than_one_that_learns() -> None:
    net = model(norm=True)
    adam = torch.optim.AdamW(net.parameters(), 0.1)

    def made(**given: Any) -> Climb:
        return climb(
            lambda: copies_of(net, adam), loss_of, batches(), 24, lambda made: made < 9, **given
        )

    whole, soon = made(), made(aims=True)
    assert len(whole.points) == 3
    assert soon.points == whole.points[:2]
    one, other = suggestion(whole, LONG), suggestion(soon, LONG)
    assert one is not None and other is not None  # noqa: PT018
    assert 1 / 1.25 < one.rate / other.rate < 1.25


def test_weights_of_schedule_free_are_judged_by_their_mean() -> None:
    net = model()
    optimizer = ScheduleFreeAdamW(net.parameters())
    copied, own = copies_of(net, optimizer)
    trained(copied, own, loss_of, batches()[0], 0.1, 10)
    assert isinstance(own, ScheduleFreeAdamW)
    mean, plain = copies_of(net, optimizer)
    rates = [share("one-cycle", step / 10) for step in range(10)]
    for rate, batch in zip(rates, batches()[0], strict=False):
        plain.param_groups[0]["lr"] = 0.1 * rate
        loss_of(mean, batch).backward()  # type: ignore[no-untyped-call]
        plain.step()
        plain.zero_grad()
    assert isinstance(plain, ScheduleFreeAdamW)
    for kept, weight in zip(copied.parameters(), mean.parameters(), strict=True):
        wanted = plain.averaged(weight, plain.param_groups[0])
        assert torch.allclose(kept, wanted)
        assert not torch.allclose(kept, weight)
