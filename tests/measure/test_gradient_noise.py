"""The gradient noise scale, from gradients whose signal and noise are known."""

from __future__ import annotations

import pytest
import torch

from outpace.measure.gradient_noise import GradientNoise


def test_gradient_noise() -> None:
    """Gradients of a known signal and noise: a mean of 3 and, for a batch of 4, a variance of 50."""
    torch.manual_seed(0)
    count, scales = 10_000, []
    for _ in range(20):
        noise = GradientNoise()
        for _ in range(8):
            noise.add([3 + 50**0.5 * torch.randn(count)])
        scales.append(noise.scale(4) or 0.0)
    assert sum(scales) / len(scales) == pytest.approx(4 * 50 / 9, rel=0.05)


def test_gradient_noise_that_a_few_steps_cannot_tell() -> None:
    noise = GradientNoise()
    assert noise.scale(4) is None
    for index in range(8):
        noise.add([torch.tensor([1.0, -1.0]) * (-1) ** index])
    largest = noise.scale(4)
    assert largest is not None
    assert 4 * 16 < largest < 4 * 64
    noise.add([torch.ones(3)])
    assert noise.scale(4) is None


def test_a_complex_gradient_is_both_of_its_parts() -> None:
    torch.manual_seed(0)
    one, other = GradientNoise(), GradientNoise()
    for _ in range(6):
        gradient = 1 + torch.randn(50, dtype=torch.complex64)
        one.add([gradient])
        other.add([torch.view_as_real(gradient)])
    assert one.scale(4) == pytest.approx(other.scale(4))
