"""What is expected of a strategy is what its own arithmetic does."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from outpace.train.candidates import CANDIDATES
from outpace.train.expected import EXPECTED, expected
from outpace.train.facts import Facts
from outpace.train.strategies import STRATEGIES
from outpace.train.strategies.progressive_resizing import ProgressiveResizing, smaller_side
from outpace.train.strategies.sequence_length import SequenceLength

SHARES = (0.7, 0.2, 0.1)
USED = [(i + 0.5) / 2000 for i in range(2000)]
"""of the budget, evenly"""


def test_it_is_of_strategies_that_auto_thinks_of() -> None:
    assert set(EXPECTED) <= {each.name for each in CANDIDATES} <= set(STRATEGIES)
    assert expected("lsuv", Facts()) == ""


def test_the_first_loss_is_that_of_guessing_by_frequency() -> None:
    logits = torch.tensor(SHARES).log().expand(1000, 3)
    targets = torch.tensor([0] * 700 + [1] * 200 + [2] * 100)
    loss = float(F.cross_entropy(logits, targets))
    told = expected("class_prior", Facts(classes=SHARES, told=True))
    assert f"{loss:.3g} at first" in told
    assert f"{math.log(3):.3g}" in told


@pytest.mark.parametrize("given", [{}, {"first": 0.25, "until": 1.0, "sizes": 3}])
def test_steps_of_smaller_images(given: dict[str, float]) -> None:
    resizing = ProgressiveResizing(**given)  # type: ignore[arg-type]
    whole, steps = (1024, 1024), 0.0
    for used in USED:
        level = min(resizing.sizes - 1, int(used / resizing.until * (resizing.sizes - 1)))
        height, width = smaller_side(whole, resizing.share(level))
        steps += whole[0] * whole[1] / (height * width)
    assert resizing.more() == pytest.approx(steps / len(USED), rel=0.02)


@pytest.mark.parametrize("given", [{}, {"first": 0.5, "until": 1.0}])
def test_steps_of_shorter_sequences(given: dict[str, float]) -> None:
    shorter, whole = SequenceLength(**given), 8192
    steps = sum(whole / shorter.length(whole, used) for used in USED)
    assert shorter.more() == pytest.approx(steps / len(USED), rel=0.02)


def test_muon_is_expected_to_pay_only_where_its_steps_are_cheap() -> None:
    assert expected("muon", Facts(muon=0.05)).startswith("1.29 times as fast")
    assert expected("muon", Facts(muon=0.5)).startswith("0.90 times as fast")


def test_the_rarest_class() -> None:
    assert "2.0 times as often" in expected(
        "repeat_factor", Facts(classes=(0.6, 0.4 - 1 / 12, 1 / 12))
    )
