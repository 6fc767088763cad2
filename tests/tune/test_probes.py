"""Probes of one step look at what is there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from outpace.tune.assemble import assemble
from outpace.tune.probes import ModelCounter, denormals


def test_weights_without_numbers_have_no_denormal_ones() -> None:
    """The model of an ensemble under vmap lies on the meta device; its weights are given with each call."""
    real, bare = nn.Linear(4, 4), nn.Linear(4, 4, device="meta")
    with torch.no_grad():
        real.weight[0] = 1e-39

    def of(model: nn.Module) -> float:
        host: Any = SimpleNamespace(main_root=lambda: (model, None))
        return denormals(host)

    assert of(bare) == 0.0
    assert of(nn.Sequential(bare, real)) == 0.25


class Own(torch.optim.Optimizer):
    """Row by row."""

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                for row in range(len(parameter)):
                    parameter[row] -= 0.1 * parameter.grad[row]


@pytest.mark.parametrize("own", [True, False])
def test_an_optimizer_that_the_script_wrote_is_seen_by_its_operators(own: bool) -> None:
    host = assemble(switching=True)
    host.install()
    try:
        model = nn.Linear(8, 32)
        made = Own(model.parameters(), {}) if own else torch.optim.SGD(model.parameters(), 0.1)

        def step() -> None:
            made.zero_grad()
            model(torch.ones(4, 8)).sum().backward()
            made.step()

        step()
        counter = ModelCounter(host)
        with counter:
            step()
        assert counter.failure is None
        found = counter.by_hand()
        assert (found is not None) == own
        if found is not None:
            assert found.in_step
            assert found.operators > 2 * 64
            assert found.function == "step"
    finally:
        host.remove()
