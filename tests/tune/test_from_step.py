"""Nothing happens before the step that is waited for."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_pre_hooks

from outpace.tune.from_step import at_each_step


class Own(torch.optim.SGD):
    """One whose step calls its base's, both of which torch hooks."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        super().step(closure)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, Own])
def test_so_many_steps_and_torch_as_it_was(kind: type[torch.optim.Optimizer]) -> None:
    own = torch.optim.Optimizer._optimizer_step_code
    hooks = dict(_global_optimizer_pre_hooks)
    seen: list[float] = []
    model = nn.Linear(2, 1)
    optimizer = kind(model.parameters(), lr=0.1)  # type: ignore[call-arg]

    def see() -> bool:
        seen.append(model.bias.item())
        return len(seen) == 3

    at_each_step(see)
    for _ in range(5):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert len(seen) == len(set(seen)) == 3
    assert torch.optim.Optimizer._optimizer_step_code is own
    assert dict(_global_optimizer_pre_hooks) == hooks
