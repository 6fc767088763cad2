"""Seeds that a script sets are others in each run of a proof, by whatever name it sets them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from outpace.seams.host import Host
from outpace.seams.seeding import SeedingSeam

SHIFT = 7919


@pytest.fixture
def seam() -> Iterator[SeedingSeam]:
    state = torch.get_rng_state(), np.random.get_state(), random.getstate()
    own = torch.manual_seed, torch.random.manual_seed
    found = SeedingSeam(Host(), SHIFT)
    found.install()
    yield found
    found.remove()
    assert (torch.manual_seed, torch.random.manual_seed) == own
    torch.set_rng_state(state[0])
    np.random.set_state(state[1])
    random.setstate(state[2])


@pytest.mark.parametrize("owner", [torch, torch.random])
@pytest.mark.parametrize("seed", [3, np.int64(3), np.uint8(3), np.uint32(3)])
def test_torchs_seed_is_shifted_once_under_both_of_its_names(
    seam: SeedingSeam, owner: Any, seed: Any
) -> None:
    owner.manual_seed(seed)
    assert torch.initial_seed() == 3 + SHIFT
    owner.manual_seed(seed=seed)
    assert torch.initial_seed() == 3 + SHIFT


@pytest.mark.parametrize("seed", [3, np.int64(3), np.uint8(3)])
def test_numpys_seeds_are_shifted_too(seam: SeedingSeam, seed: Any) -> None:
    np.random.seed(seed)
    drawn = np.random.random(), np.random.default_rng(seed).random()
    seam.remove()
    np.random.seed(3 + SHIFT)
    assert drawn == (np.random.random(), np.random.default_rng(3 + SHIFT).random())


def test_what_is_no_number_stays(seam: SeedingSeam) -> None:
    random.seed("words")
    drawn = random.random()
    seam.remove()
    random.seed("words")
    assert drawn == random.random()
