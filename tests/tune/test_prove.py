"""The proof: what is as good passes, what is worse does not, and what should be equal is compared."""

from __future__ import annotations

import random

import pytest

from outpace.tune.prove import Losses, prove, prove_equal


def curve(seed: int, worse: float = 0.0, noise: float = 0.01, steps: int = 200) -> Losses:
    """A loss that falls from 2 to 1; ``worse`` is added to its end."""
    chance = random.Random(seed)
    values = [
        1 + 0.99**step + worse * step / steps + chance.gauss(0, noise) for step in range(steps)
    ]
    return Losses(tuple(range(64, 64 * steps + 1, 64)), tuple(values), {})


def runner(worse: float, noise: float = 0.001):
    def run(seed: int, recipe: bool, steps: int) -> Losses:
        return curve(2 * seed + recipe, worse if recipe else 0.0, noise, steps)

    return run


def test_as_good_is_proven() -> None:
    proof = prove(runner(0.0), seeds=3, steps=200, margin=0.01)
    assert proof.proven
    assert proof.seeds == 3
    assert proof.high < 0.01


@pytest.mark.parametrize("worse", [0.05, 0.2, float("nan"), float("inf")])
def test_worse_is_not_proven(worse: float) -> None:
    assert not prove(runner(worse), seeds=3, steps=200, margin=0.01).proven


def test_better_is_proven() -> None:
    assert prove(runner(-0.1), seeds=3, steps=200, margin=0.01).proven


def test_noise_is_not_a_proof() -> None:
    noisy = prove(runner(0.0, noise=2.0), seeds=3, steps=50, margin=0.01, enough_time=lambda: False)
    assert not noisy.proven


def test_a_loss_that_does_not_fall_proves_nothing() -> None:
    def run(seed: int, recipe: bool, steps: int) -> Losses:
        return Losses(tuple(range(steps)), tuple(1.0 + i for i in range(steps)), {})

    assert not prove(run, seeds=3, steps=60, margin=0.01).proven


def test_a_run_that_fails_proves_nothing() -> None:
    proof = prove(lambda *_: None, seeds=3, steps=60, margin=0.01)
    assert not proof.proven
    assert "failed" in proof.reason


def test_a_metric_is_judged_instead_of_the_loss() -> None:
    def run(seed: int, recipe: bool, steps: int) -> Losses:
        plain = curve(seed, steps=steps)
        return Losses(plain.samples, plain.values, {"accuracy": 0.5 if recipe else 0.9})

    proof = prove(run, seeds=3, steps=60, margin=0.01)
    assert (proof.measure, proof.proven) == ("accuracy", False)


def test_equal_losses() -> None:
    same = prove_equal(lambda *_: curve(0), 12)
    assert same.proven
    assert not same.needed
    other = prove_equal(lambda seed, recipe, steps: curve(int(recipe)), 12)
    assert not other.proven
    assert "step 0" in other.reason
