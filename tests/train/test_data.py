"""Batches of a training: where it is in them, whatever their size and the number of ranks."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils.data import TensorDataset

from outpace.serve.loader import Loader
from outpace.train.data import Batches

SAMPLES = 96


def ranks(size: int, world: int) -> list[Batches]:
    """The batches of each rank."""
    data = TensorDataset(torch.arange(SAMPLES))
    loaders = [Loader(data, size, executor="none", rank=i, world=world) for i in range(world)]
    return [Batches(loader, torch.device("cpu")) for loader in loaders]


@pytest.mark.parametrize(
    ("before", "after"),
    [((16, 1), (7, 1)), ((7, 1), (16, 1)), ((8, 2), (10, 1)), ((12, 1), (6, 4)), ((4, 4), (14, 2))],
)
def test_of_other_sizes_and_ranks_no_sample_is_lost_or_repeated(
    before: tuple[int, int], after: tuple[int, int]
) -> None:
    steps = -(-SAMPLES // (before[0] * before[1]))
    for made in range(1, steps + 1):
        seen: list[int] = []
        first, then = ranks(*before), ranks(*after)
        for batches in first:
            drawn = itertools.islice(batches.epoch(), made)
            seen += [number for (numbers,) in drawn for number in numbers.tolist()]
        for batches in then:
            batches.load_state_dict(first[0].state_dict())
            left, ends = batches.left or 0, list[bool]()
            for (numbers,) in batches.epoch():
                seen += numbers.tolist()
                ends.append(batches.at_end)
            assert ends == [place == left for place in range(1, left + 1)]
        assert sorted(seen) == list(range(SAMPLES))
