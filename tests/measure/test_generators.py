from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from outpace.measure.generators import random_states
from outpace.seams.generators import generators_kept, moved

DRAWS: dict[str, Callable[[], Any]] = {
    "python": random.random,
    "numpy": np.random.rand,
    "torch": lambda: float(torch.rand(())),
}


def drawn() -> list[Any]:
    return [draw() for draw in DRAWS.values()]


def test_generators_are_kept() -> None:
    torch.manual_seed(0)
    with generators_kept():
        inside = drawn()
    assert drawn() == inside


def test_they_are_put_back_after_an_error_too() -> None:
    def failing() -> None:
        with generators_kept():
            drawn()
            raise KeyError

    before = random_states()
    with pytest.raises(KeyError):
        failing()
    assert moved(before, random_states()) == set()


@pytest.mark.parametrize("name", DRAWS)
def test_those_that_were_drawn_from_are_told(name: str) -> None:
    before = random_states()
    assert moved(before, random_states()) == set()
    DRAWS[name]()
    assert moved(before, random_states()) == {name}


def test_a_number_that_was_drawn_beforehand_counts() -> None:
    """Of each two that are normally distributed, the second one moves no words of numpy's state."""
    np.random.seed(0)
    np.random.randn()
    before = random_states()
    np.random.randn()
    assert moved(before, random_states()) == {"numpy"}


def test_one_of_the_scripts_own_is_kept_too() -> None:
    own = torch.Generator().manual_seed(3)
    wanted = torch.rand(2, generator=torch.Generator().manual_seed(3))
    with generators_kept(own, None):
        torch.rand(5, generator=own)
    assert torch.equal(torch.rand(2, generator=own), wanted)
