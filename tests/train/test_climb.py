"""Short trainings at several rates: which are tried, and what they say of a long training."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from outpace.train.climb import (
    FIRST,
    FIRST_ADAPTIVE,
    STRIDE,
    Climb,
    Point,
    best,
    climb,
    horizon,
    suggestion,
    wanted,
)
from outpace.train.layers import copies_of
from tests.train.toys import model, points, same


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


def bowl(lowest: float, rates: Sequence[float]) -> list[Point]:
    return [Point(rate, 1.0 + math.log(rate / lowest) ** 2) for rate in rates]


@given(st.floats(-8.0, 4.0))
def test_it_climbs_to_the_lowest_and_both_its_neighbours(lowest: float) -> None:
    tried: dict[int, float] = {}
    while (at := wanted(tried)) is not None:
        assert at not in tried
        tried[at] = abs(at - lowest)
    best_at = min(tried, key=lambda at: (tried[at], at))  # of two that are equal the smaller rate
    assert {best_at - 1, best_at, best_at + 1} <= tried.keys()
    assert sorted(tried) == list(range(min(tried), max(tried) + 1))
    assert len(tried) <= abs(lowest) + 4


def test_where_all_blow_up_it_goes_down() -> None:
    tried = {0: math.inf, 1: math.inf}
    assert wanted(tried) == -1
    assert wanted({**tried, -1: math.inf}) == -2


@given(st.floats(1e-4, 1.0))
def test_the_lowest_of_a_bowl_is_found_between_rates(lowest: float) -> None:
    rates = [lowest * STRIDE**i for i in (-1.4, -0.4, 0.6)]
    assert best(bowl(lowest, rates)) == pytest.approx(lowest)


def test_without_two_neighbours_the_lowest_stands_for_itself() -> None:
    assert best(bowl(0.1, [0.1])) == 0.1
    assert best(bowl(0.1, [0.1, 0.3])) == 0.1
    assert best([Point(0.01, 2.0), Point(0.03, 1.0), Point(0.1, math.inf)]) == 0.03
    assert best([Point(0.01, 1.0), Point(0.03, 1.0), Point(0.1, 1.0)]) == 0.01


@given(st.integers(10, 40), st.floats(10, 1e7))
def test_a_longer_training_is_given_a_smaller_rate(steps: int, total: float) -> None:
    assert horizon(steps, 10 * total) >= horizon(steps, total) >= 1.0
    found = suggestion(Climb(bowl(0.03, [0.03 / STRIDE, 0.03, 0.03 * STRIDE]), 9.0, steps), total)
    assert found is not None
    assert found.rate * horizon(steps, total) == pytest.approx(0.03)
    assert found.low < found.rate < found.high


def test_what_lowers_no_loss_is_no_suggestion() -> None:
    assert suggestion(Climb([Point(0.1, math.inf)], 2.0, 20), 1000) is None
    assert suggestion(Climb([Point(0.1, 2.0), Point(0.3, 2.1)], 2.0, 20), 1000) is None
    assert suggestion(Climb([Point(0.1, 1.9), Point(0.3, 2.1)], 2.0, 20), 1000) is not None


def test_copies_learn_and_the_first_one_does_not() -> None:
    net = model()
    adam = torch.optim.AdamW(net.parameters(), 0.1)
    before = {name: weight.clone() for name, weight in net.state_dict().items()}
    made = climbed(adam, net)
    assert same(before, dict(net.state_dict()))
    assert not adam.state
    assert min(point.loss for point in made.points) < made.before
    assert any(point.rate == pytest.approx(FIRST_ADAPTIVE) for point in made.points)
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
    assert math.isfinite(best(made.points))
    assert all(math.isfinite(p.loss) for p in made.points if p.rate <= best(made.points))
