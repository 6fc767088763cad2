"""Other ways to compute a step: taken where they are faster beyond doubt and the same but for rounding."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch

from outpace.measure.generators import random_states
from outpace.train.faster import FEWEST, MOST, WARM, Faster, compared, distance
from outpace.train.run import Run
from outpace.train.strategies import Strategy
from outpace.train.trials import Trials, Variant
from tests.train.test_trials import Ticking, trials
from tests.train.toys import Time, model, same

GRADIENT = 2
"""steps' worth of gradients that are compared"""


class Quick(Strategy):
    """Its steps take ``seconds`` where others take one, and its gradients are ``times`` as long."""

    name = "quick"

    def __init__(self, time: Time, seconds: float, times: float = 1.0) -> None:
        self.time, self.seconds, self.times = time, seconds, times

    def __deepcopy__(self, memo: Any) -> Quick:
        return self

    def batch(self, run: Run, batch: Any) -> None:
        self.time.s += self.seconds - 1.0

    def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor:
        return loss * self.times


def tried(seconds: float, times: float = 1.0, **given: Any) -> tuple[Faster, int]:
    """What is told of it, and the steps that it took."""
    time = Time()
    loss = Ticking(time)
    few = trials(8, time=time, loss=loss, **given)
    found = compared(few, Variant("as it is"), Variant("quick", (Quick(time, seconds, times),)))
    return found, loss.steps


@pytest.mark.parametrize(
    ("seconds", "taken"), [(0.5, True), (0.8, True), (0.97, False), (1.5, False)]
)
def test_steps_are_timed_in_turns(seconds: float, taken: bool) -> None:
    found, steps = tried(seconds)
    assert found.gain is not None
    assert found.gain.speedup == pytest.approx(1.0 / seconds)
    assert found.gain.low <= found.gain.speedup <= found.gain.high
    assert found.apart == 0.0
    assert found.taken == taken
    assert GRADIENT + 2 * (WARM + FEWEST) <= steps <= GRADIENT + 2 * (WARM + MOST)


def test_what_is_clear_ends_early() -> None:
    assert tried(0.3)[1] == GRADIENT + 2 * (WARM + FEWEST)
    found, steps = tried(10.0)
    assert steps == GRADIENT + 2
    assert not found.taken


@pytest.mark.parametrize(
    ("times", "taken"), [(1.05, True), (0.95, True), (1.2, False), (0.0, False)]
)
def test_gradients_may_differ_by_rounding_and_no_more(times: float, taken: bool) -> None:
    found, steps = tried(0.5, times)
    assert found.apart == pytest.approx(abs(times - 1.0), rel=1e-4)
    assert found.taken == taken
    assert (found.gain is not None) == (steps > GRADIENT) == taken


@pytest.mark.parametrize("times", [math.nan, math.inf])
def test_gradients_that_are_no_numbers_are_not_the_same(times: float) -> None:
    found, _ = tried(0.5, times)
    assert found.apart == math.inf
    assert not found.taken


def test_dropout_does_not_count_as_a_difference() -> None:
    assert tried(0.5, module=model(dropout=0.5, norm=True))[0].apart == 0.0


class Drawing(torch.nn.Linear):
    """Draws without a layer that says so."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.nn.functional.dropout(x, 0.3, self.training))


def test_nor_does_what_the_model_draws_by_itself() -> None:
    assert tried(0.5, module=Drawing(8, 3))[0].apart == 0.0


def test_all_is_left_as_it_was() -> None:
    net = model(dropout=0.2, norm=True)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    time = Time()
    few: Trials = trials(8, time=time, loss=Ticking(time), module=net, optimizer=optimizer)
    seen = copy.deepcopy((net.state_dict(), optimizer.state_dict(), few.batches))
    states = random_states()
    compared(few, Variant("as it is"), Variant("quick", (Quick(time, 0.5),)))
    assert same([net.state_dict(), optimizer.state_dict(), few.batches], list(seen))
    assert same(random_states(), states)
    assert all(p.grad is None for p in net.parameters())
    assert net[3].p == 0.2


def test_steps_are_paid_for() -> None:
    time = Time()
    few = trials(8, time=time, loss=Ticking(time), most=100.0)
    before = few.purse.steps
    compared(few, Variant("as it is"), Variant("quick", (Quick(time, 0.5),)))
    assert before - few.purse.steps == GRADIENT + 2 * (WARM + FEWEST)


def test_a_distance_of_sparse_gradients() -> None:
    one = torch.sparse_coo_tensor([[0, 0, 2]], [3.0, 1.0, 3.0], (4,))
    assert distance([one], [one]) == 0.0
    assert distance([one], [one * 1.1]) == pytest.approx(0.1)
    assert distance([one], []) == math.inf
    assert distance([torch.zeros(3)], [torch.zeros(3)]) == math.inf


def test_it_ends_where_there_is_no_more_to_spend() -> None:
    assert tried(0.97)[1] > 16
    for limit in ("most", "seconds"):
        time = Time()
        loss = Ticking(time)
        few = trials(8, time=time, loss=loss, **{limit: 16.0})
        compared(few, Variant("as it is"), Variant("quick", (Quick(time, 0.97),)))
        assert GRADIENT + 2 * (WARM + FEWEST) <= loss.steps <= 16
        assert time.s - 100.0 <= 16.0
