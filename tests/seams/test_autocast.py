"""A model's call under another precision than the script's, and under its own again."""

from __future__ import annotations

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
