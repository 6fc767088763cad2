"""Small nets of all the shapes that channels go through, and one that has learnt something."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.train.toys import accuracy, points


class Residual(nn.Module):
    """Two layers make the channels that are added."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.inner = nn.Conv2d(8, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.outer = nn.Conv2d(6, 8, 1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.stem(x))
        x = x + self.outer(F.silu(self.norm(self.inner(x))))
        found: torch.Tensor = self.head(x.mean((2, 3)))
        return found


class UNet(nn.Module):
    """Channels stand side by side, and images get smaller and larger again."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 6, 3, padding=1)
        self.bottom = nn.Conv2d(6, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 5, 2, stride=2)
        self.norm = nn.BatchNorm2d(11)
        self.head = nn.Conv2d(11, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left = torch.sigmoid(self.down(x))
        right = self.up(torch.relu_(self.bottom(F.max_pool2d(left, 2))))
        found: torch.Tensor = self.head(self.norm(torch.cat([left, right], dim=1)))
        return found


class Gated(nn.Module):
    """A depthwise convolution, and a gate on each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(3, 8, 1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.squeeze = nn.Linear(8, 4)
        self.excite = nn.Linear(4, 8)
        self.narrow = nn.Conv2d(8, 5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.hardswish(self.depthwise(F.gelu(self.wide(x))))
        gate = self.excite(torch.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1).flatten(1))))
        x = x * torch.sigmoid(gate).view(x.size(0), -1, 1, 1)
        found: torch.Tensor = self.narrow(x).amax((2, 3))
        return found


class Mixer(nn.Module):
    """Linear layers along sequences, turned for a convolution; LayerNorm keeps the outer channels."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 6)
        self.norm = nn.LayerNorm(6)
        self.grow = nn.Linear(6, 12)
        self.shrink = nn.Linear(12, 6)
        self.along = nn.Conv1d(6, 7, 3, padding=1)
        self.head = nn.Linear(7, 3)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        x = self.embed(x)
        x = x + self.shrink(F.gelu(self.grow(self.norm(x))))
        if mask is not None:
            x = x * mask
        found: torch.Tensor = self.head(self.along(x.transpose(1, 2)).permute(0, 2, 1).mean(1))
        return found


class Attends(nn.Module):
    """A layer of a GPT: its length is asked for, a buffer cut to it, and heads taken apart."""

    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(10, 8), nn.Embedding(16, 8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.register_buffer("mask", torch.ones(16, 16).tril())
        self.mlp = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length = x.shape
        x = self.tokens(x) + self.places(torch.arange(length, device=x.device))
        q, k, v = self.qkv(x).view(batch, length, 6, 4).transpose(1, 2).split(2, 1)
        scores = (q @ k.transpose(-2, -1)).masked_fill(self.mask[:length, :length] == 0, -1e9)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, 8)
        x = x + self.out(mixed)
        return x + self.mlp(x)  # type: ignore[no-any-return]


def chain() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 6, 3, stride=2),
        nn.BatchNorm2d(6, affine=False),
        nn.LeakyReLU(),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(6 * 3 * 3, 10),
        nn.BatchNorm1d(10),
        nn.Softplus(),
        nn.Linear(10, 4),
    )


def pictures() -> torch.Tensor:
    return torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def symbols() -> torch.Tensor:
    return torch.randint(10, (4, 9), generator=torch.Generator().manual_seed(0))


NETS: dict[str, tuple[Any, Any]] = {
    "chain": (chain, pictures),
    "residual": (Residual, pictures),
    "unet": (UNet, pictures),
    "gated": (Gated, pictures),
    "mixer": (Mixer, symbols),
    "attends": (Attends, symbols),
}


def net(name: str) -> tuple[nn.Module, torch.Tensor]:
    """In eval mode and double precision, its statistics those of a batch; and an input."""
    torch.manual_seed(0)
    build, inputs = NETS[name]
    model, x = build().double(), inputs()
    x = x.double() if x.is_floating_point() else x
    with torch.no_grad():
        model.train()(x)
    return model.eval(), x


@functools.cache
def _learnt() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 512), nn.ReLU(), nn.Linear(512, 3)
    )
    x, y = points(2000)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, weight_decay=1.0)
    for _ in range(200):
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    valid = points(1000, seed=1)
    assert accuracy(model(valid[0]), valid[1]) > 0.95
    return model.eval(), valid


def learnt() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """A net that tells `points` apart by a first layer that is small and needed, and a second that is
    large and mostly not; and points that it has not seen.
    """
    model, valid = _learnt()
    copy: nn.Module = torch.nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 512), nn.ReLU(), nn.Linear(512, 3)
    )
    copy.load_state_dict(model.state_dict())
    return copy, valid
