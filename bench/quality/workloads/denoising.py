"""Noise taken out of grey patches of photographs: a small U-Net."""

import numpy as np
import torch
from metrics import Psnr
from torch import nn
from torch.nn import functional as F
from workload import Split, Workload, shipped

LEARN = ("astronaut", "brick", "camera", "coffee", "grass", "gravel", "rocket")
JUDGE = ("chelsea", "coins")
"""photographs"""
SIDE, NOISE = 32, 0.1
PATCHES, JUDGED = 6000, 256


def data() -> Split:
    """Patches with noise, and without."""
    chance = np.random.default_rng(0)
    return (*patches(LEARN, PATCHES, chance), *patches(JUDGE, JUDGED, chance))


def patches(
    names: tuple[str, ...], count: int, chance: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """From anywhere in photographs that scikit-image ships, values from 0 to 1."""
    from PIL import Image

    files = sorted(shipped("skimage", "data").glob("*.[jp][pn]g"))
    chosen = [path for path in files if path.stem in names]
    photos = [np.asarray(Image.open(path).convert("L"), np.float32) / 255 for path in chosen]
    found = np.empty((count, 1, SIDE, SIDE), np.float32)
    for index in range(count):
        photo = photos[index % len(photos)]
        top, left = (int(chance.integers(size - SIDE + 1)) for size in photo.shape)
        found[index, 0] = photo[top : top + SIDE, left : left + SIDE]
    noisy = found + NOISE * chance.standard_normal(found.shape, np.float32)
    return torch.from_numpy(noisy), torch.from_numpy(found)


def twice(before: int, after: int) -> nn.Sequential:
    """Two convolutions."""
    return nn.Sequential(
        *(nn.Conv2d(before, after, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(after, after, 3, padding=1), nn.ReLU()),
    )


class UNet(nn.Module):
    """Three scales (Ronneberger et al. 2015); what it gives is the noise to subtract."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = twice(1, 16), twice(16, 32), twice(32, 64)
        self.up2, self.up1 = twice(64 + 32, 32), twice(32 + 16, 16)
        self.last = nn.Conv2d(16, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Patches without their noise."""
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        three = self.bottom(F.max_pool2d(two, 2))
        two = self.up2(torch.cat([F.interpolate(three, scale_factor=2.0), two], dim=1))
        one = self.up1(torch.cat([F.interpolate(two, scale_factor=2.0), one], dim=1))
        found: torch.Tensor = x - self.last(one)
        return found


WORKLOAD = Workload(
    title="photographs, U-Net that denoises",
    data=data,
    model=UNet,
    loss=F.mse_loss,
    metric=Psnr,
    measure="PSNR, dB",
    larger=True,
    batch=32,
    every=25,
    steps=550,
    budget_s=40.0,
    source="scikit-image (BSD-3-Clause; photographs CC0 or in the public domain)",
)
