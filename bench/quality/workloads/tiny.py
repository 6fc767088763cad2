"""Made from a seed, for tests: which of three circles a point lies on."""

import math

import torch
from metrics import Accuracy
from torch import nn
from torch.nn import functional as F
from workload import Split, Workload, held_out


def data() -> Split:
    """Points near circles of three sizes."""
    chance = torch.Generator().manual_seed(0)
    label = torch.arange(1200) % 3
    angle = 2 * math.pi * torch.rand(1200, generator=chance)
    radius = 0.5 + label + 0.1 * torch.randn(1200, generator=chance)
    points = radius[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)
    return held_out(points, label, 300)


def model() -> nn.Module:
    """One hidden layer."""
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 3))


WORKLOAD = Workload(
    title="circles, MLP",
    data=data,
    model=model,
    loss=F.cross_entropy,
    metric=Accuracy,
    measure="accuracy",
    larger=True,
    batch=32,
    every=10,
    steps=300,
    budget_s=2.0,
    source="made here",
)
