"""Rates of an optimizer's groups, which callbacks may change as well."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from outpace.train.optimizers import Rates
from outpace.train.run import Run
from outpace.train.strategies import OneCycle
from tests.train.toys import fit, model


def test_a_rate_that_others_have_set_is_rescaled_as_it_is() -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1)
    rates = Rates(optimizer)
    optimizer.param_groups[0]["lr"] = 0.01
    rates.rescale(0.5)
    assert rates.now == optimizer.param_groups[0]["lr"] == pytest.approx(0.005)


def test_groups_that_a_callback_adds_follow_the_course() -> None:
    net = model()
    told: list[list[float]] = []

    class Unfreeze:
        def epoch_end(self, run: Run) -> None:
            if run.epoch == 1:
                group = {"params": list(net[0].parameters()), "lr": 0.02}
                run.optimizer.add_param_group(group)

        def step_end(self, run: Run) -> None:
            told.append([group["lr"] for group in run.optimizer.param_groups])

    before = net[0].weight.detach().clone()
    optimizer = torch.optim.SGD(net[-1].parameters(), 0.1)
    result = fit(
        model=net, optimizer=optimizer, strategies=[OneCycle(rate=0.1)], callbacks=[Unfreeze()]
    )
    assert result.epochs == 4
    assert not torch.equal(net[0].weight, before)
    assert {len(rates) for rates in told[:10]} == {1}
    for first, second in told[10:]:
        assert second == pytest.approx(0.2 * first)
