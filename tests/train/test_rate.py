"""What rate a long training bears: by short ones, and by the size of the weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from outpace.train.climb import STRIDE
from outpace.train.rate import (
    APART,
    BELOW,
    LONG,
    PART,
    VARIED,
    Climb,
    Point,
    as_good,
    careful,
    drawn,
    error,
    horizon,
    sound,
    suggestion,
    usual_rate,
)


def bowl(lowest: float, rates: Sequence[float]) -> list[Point]:
    return [Point(rate, 1.0 + math.log(rate / lowest) ** 2) for rate in rates]


def test_what_learns_little_as_it_is_slow_has_not_failed() -> None:
    slow = [0.99, 0.95, 0.4, 0.1]
    assert sound(slow, 1.0) == 4
    assert sound([0.2, 0.98, 0.1], 1.0) == 1
    assert sound([math.inf, math.inf], 1.0) == 2
    assert sound([0.2, 0.3, math.inf], math.inf) == 2


@given(st.integers(0, 3), st.floats(0.0, 0.02))
def test_all_that_are_as_good_count(lowest: int, apart: float) -> None:
    # Four that a seed orders by chance: what is told is their middle, whichever is the lowest.
    losses = [1.0 + (apart if i != lowest else 0.0) for i in range(4)]
    points = [Point(0.01 * STRIDE**i, loss) for i, loss in enumerate(losses)]
    rate, _ = as_good([Point(0.001, 4.0), *points, Point(1.0, 6.0)], 5.0)
    assert abs(rate - math.log(0.01 * STRIDE**1.5)) < 0.2


def test_what_the_batches_do_not_tell_apart_is_as_good() -> None:
    noise = [0.5, -0.5, 0.4, -0.4]
    low = Point(0.01, 1.0, (1.0, 1.0, 1.0, 1.0))
    noisy = Point(0.1, 1.2, tuple(1.2 + each for each in noise))
    sure = Point(0.1, 1.2, (1.2, 1.2, 1.2, 1.2))
    assert error(noisy.parts, low.parts) == pytest.approx(0.2614, rel=1e-3)
    assert error(sure.parts, low.parts) == pytest.approx(0.0, abs=1e-9)
    assert error((), low.parts) == 0.0
    assert as_good([low, noisy], 2.0)[0] > as_good([low, sure], 2.0)[0] + 0.5


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


def test_the_usual_rate_is_a_tenth_of_what_weights_are() -> None:
    net = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 16), nn.LayerNorm(16), nn.Linear(16, 3))
    with torch.no_grad():
        net[0].weight.fill_(50.0)  # embeddings are as large as one likes
        net[1].weight.fill_(0.2)
        net[3].weight.copy_(torch.randn(3, 16).sign() * 0.05)
    adam = torch.optim.AdamW(net.parameters())
    assert usual_rate(net, adam) == pytest.approx(PART * math.sqrt(0.2 * 0.05))
    with torch.no_grad():
        net[3].weight.zero_()  # begins at nothing: it tells nothing
    assert usual_rate(net, adam) == pytest.approx(PART * 0.2)
    net[1].weight.requires_grad_(False)
    assert usual_rate(net, adam) is None
    assert usual_rate(nn.Linear(4, 3), torch.optim.SGD(net.parameters(), 0.1)) is None


def test_wider_models_are_given_smaller_rates() -> None:
    rates = []
    for width in (16, 64, 256, 1024):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        rates.append(usual_rate(net, torch.optim.Adam(net.parameters())) or 0.0)
    assert rates == sorted(rates, reverse=True)
    assert 7.0 < rates[0] / rates[-1] < 9.0


@given(st.floats(0.0, 7.0), st.sampled_from([-1.0, 1.0]))
def test_the_further_apart_the_more_short_trainings_count(apart: float, way: float) -> None:
    usual = math.log(0.005)
    middle, variance = drawn(usual + way * apart, 1.1, usual)
    further, _ = drawn(usual + way * (apart + 0.5), 1.1, usual)
    assert 0.0 < variance < 5.0
    assert (further - middle) * way > 0.0
    share = abs(middle - usual) / apart if apart > 1e-3 else 0.3
    assert share < 0.55 if apart < 3.0 else share > 0.4
    assert share > 0.9 or apart < 6.0


def test_a_rate_of_short_trainings_is_drawn_to_the_usual_one() -> None:
    clear = [Point(0.001 * STRIDE**i, loss) for i, loss in enumerate((1.0, 0.2, 1.5, 3.0))]
    alone = suggestion(Climb(clear, 2.0, 24), LONG)
    both = suggestion(Climb(clear, 2.0, 24, 0.006), LONG)
    assert alone is not None and both is not None  # noqa: PT018
    assert alone.rate < both.rate < 0.006
    assert both.high / both.low < alone.high / alone.low


def test_weights_that_were_trained_before_are_not_torn() -> None:
    # What lowers their loss at all is a hundredth of the usual rate.
    losses = (0.9, 0.8, 0.85, 1.2, 2.0, 5.0)
    tuned = [Point(3e-5 * STRIDE**i, loss) for i, loss in enumerate(losses)]
    found = suggestion(Climb(tuned, 1.0, 24, 0.005), LONG)
    assert found is not None
    assert found.rate < 3e-4


def test_no_rate_is_above_one_that_failed_in_a_few_steps() -> None:
    points = [Point(0.001, 0.8), Point(0.003, 0.2), Point(0.01, 0.99), Point(0.03, 1.0)]
    found = suggestion(Climb(points, 1.0, 24, 0.02), 24)
    assert found is not None
    assert found.rate <= 0.003


def test_without_a_number_before_any_that_is_one_is_a_gain() -> None:
    found = suggestion(Climb([Point(0.01, 1.0), Point(0.03, math.inf)], math.inf, 24), 1000)
    assert found is not None
    assert math.isfinite(found.rate)


def test_where_all_rates_do_harm_a_smaller_one_is_taken_than_any() -> None:
    harmful = Climb([Point(0.001, 1.2), Point(0.003, math.inf)], 1.0, 24, 0.01)
    assert suggestion(harmful, LONG) is None
    rate = careful(harmful, LONG)
    assert rate == pytest.approx(0.001 / BELOW / horizon(24, LONG))
    assert careful(Climb([Point(0.1, 2.0), Point(0.3, 2.0)], 2.0, 24), LONG) is None
    assert careful(Climb([Point(0.1, 1.9), Point(0.3, 2.5)], 2.0, 24), LONG) is None
    assert careful(Climb([Point(0.1, math.inf)], math.inf, 24), LONG) is None


@pytest.mark.parametrize("way", [-1.0, 1.0])
def test_far_from_the_usual_rate_no_rate_is_taken_that_neither_tells(way: float) -> None:
    usual = math.log(0.005)
    told = usual + way * math.log(50.0)
    middle, variance = drawn(told, 1.1, usual)
    assert abs(middle - told) < 0.1 * math.log(50.0)
    assert variance < 1.1
    near = usual + way * math.log(10.0)
    assert abs(drawn(near, 1.1, usual)[0] - usual) < 0.5 * math.log(10.0)


def test_weights_that_were_trained_before_are_drawn_less_to_what_is_usual() -> None:
    losses = (0.9, 0.8, 0.85, 1.2)
    points = [Point(1e-3 * STRIDE**i, loss) for i, loss in enumerate(losses)]
    rates = [suggestion(Climb(points, 1.0, 24, 2e-4, apart), LONG) for apart in (APART, VARIED)]
    alone = suggestion(Climb(points, 1.0, 24), LONG)
    assert alone is not None
    near, far = (abs(math.log(each.rate / alone.rate)) for each in rates if each is not None)
    assert far < 0.8 * near
