"""What is copied of a sampler to ask it for its length; that nothing changes is in test_loader.py."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from torch.utils.data import DataLoader, Sampler

from outpace.seams.apart import MOST_COPIED, apart, only_counts


class Counts(Sampler[int]):
    """Tells how many it has, in one way or another."""

    def __init__(self, of: list[int]) -> None:
        self.of, self.size, self.rng = of, 2, random.Random(0)

    def plain(self) -> int:
        return len(self.of)

    def by_math(self) -> int:
        return max(1, math.ceil(len(self.of) / self.size))

    def by_walking(self) -> int:
        return sum(1 for _ in self.of)

    def by_asking(self) -> int:
        return self.plain()

    def by_chance(self) -> int:
        return self.rng.randint(1, len(self.of))


@pytest.mark.parametrize(
    ("name", "is_sure"),
    [
        ("plain", True),
        ("by_math", True),
        ("by_walking", False),
        ("by_asking", False),
        ("by_chance", False),
    ],
)
def test_what_a_length_is_counted_by_need_not_be_copied(name: str, is_sure: bool) -> None:
    kind = type(name, (Counts,), {"__len__": vars(Counts)[name]})
    assert only_counts(kind) == is_sure
    sampler = kind(list(range(4)))
    batches: DataLoader[Any] = DataLoader(range(4), sampler=sampler)  # type: ignore[arg-type]
    own: Any = apart(batches).sampler
    assert own is not sampler
    assert (own.of is sampler.of) == is_sure
    sampler.of = list(range(MOST_COPIED + 1))
    if not is_sure:
        with pytest.raises(ValueError, match="too much"):
            apart(batches)
