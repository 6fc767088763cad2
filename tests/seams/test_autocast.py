"""A model's call under another precision than the script's, and under its own again."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from outpace.seams.setup import AS_IS, Setup
from outpace.tune.assemble import assemble


def test_the_scripts_own_autocast_is_turned_off_for_the_model_and_on_again() -> None:
    host = assemble(switching=True)
    host.install()
    try:
        model = nn.Linear(8, 4)
        with torch.autocast("cpu", torch.bfloat16):
            half = nn.functional.linear(torch.ones(2, 8), torch.ones(8, 8))

        def made(setup: Setup, autocast: bool) -> torch.dtype:
            host.switch(setup)
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                out = model(half if autocast else half.float())
                assert torch.is_autocast_enabled("cpu") == autocast
            out.float().sum().backward()
            return out.dtype  # type: ignore[no-any-return]

        assert made(AS_IS, autocast=True) == torch.bfloat16
        assert made(Setup(autocast="float32"), autocast=True) == torch.float32
        assert made(Setup(autocast="bfloat16"), autocast=True) == torch.bfloat16
        assert made(Setup(autocast="float32"), autocast=False) == torch.float32
        assert made(AS_IS, autocast=True) == torch.bfloat16
    finally:
        host.remove()


def test_a_teacher_in_half_precision_stays_as_it_is() -> None:
    host = assemble(switching=True)
    host.install()
    try:
        host.switch(Setup(autocast="float32"))
        teacher = nn.Linear(8, 4).to(torch.bfloat16)
        with torch.autocast("cpu", torch.bfloat16):
            out = teacher(torch.ones(2, 8, dtype=torch.bfloat16))
        assert out.dtype == torch.bfloat16
    finally:
        host.remove()


def test_a_model_writes_to_the_state_that_it_is_given() -> None:
    @dataclass
    class State:
        hidden: torch.Tensor

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor, state: State) -> torch.Tensor:
            state.hidden = self.inner(x)
            return state.hidden

    host, state = assemble(switching=True), State(torch.ones(2, 4, 1, 1, dtype=torch.bfloat16))
    host.install()
    try:
        host.switch(Setup(autocast="float32", channels_last=True))
        with torch.autocast("cpu", torch.bfloat16):
            out = Model()(torch.ones(2, 8), state)
        assert state.hidden is out or torch.equal(state.hidden, out)
    finally:
        host.remove()
