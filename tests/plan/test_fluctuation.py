"""How far a mean of steps to come may be from that of those that were seen."""

from __future__ import annotations

import math
import random

import pytest

from outpace.plan.fluctuation import FEWEST, MOST, Fluctuation, spread


def test_alike_blocks_are_worth_fewer() -> None:
    chance = random.Random(0)
    apart = [chance.gauss(0, 1) for _ in range(2000)]
    variance, alike, independent = spread(apart)
    assert variance == pytest.approx(1.0, rel=0.1)
    assert alike == pytest.approx(1.0, abs=0.3)
    doubled = [value for value in apart[:1000] for _ in range(4)]
    _, alike, independent = spread(doubled)
    assert alike == pytest.approx(4.0, rel=0.25)
    assert independent == pytest.approx(1000, rel=0.25)
    assert spread([1.0] * 50)[0] == 0.0


def test_blocks_become_longer_and_stay_few() -> None:
    found = Fluctuation()
    for _ in range(5000):
        found.note(0.5, 10)
    assert FEWEST < len(found.blocks) <= MOST
    assert sum(s for s, _ in found.blocks) == pytest.approx(2500, rel=0.05)
    assert found.step_s == pytest.approx(0.05)
    assert found.limit(100.0) == pytest.approx(1.0)


@pytest.mark.parametrize("alike", [1, 5])
def test_four_of_five_means_to_come_are_within_the_limit(alike: int) -> None:
    """Of noise in which ``alike`` seconds are as one."""
    chance, held, tried = random.Random(1), 0, 400
    for _ in range(tried):
        pace = [math.exp(chance.gauss(0, 0.3)) for _ in range(40) for _ in range(alike)]
        found = Fluctuation()
        for value in pace[: 20 * alike]:
            found.note(value, 1)
        assert found.step_s is not None
        to_come = sum(pace[20 * alike :])
        limit = found.limit(20 * alike * found.step_s)
        held += 1 / limit <= to_come / (20 * alike * found.step_s) <= limit
    assert 0.7 < held / tried < 0.9
