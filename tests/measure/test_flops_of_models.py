"""FLOPs of whole models against their closed forms, forward and backward."""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.measure.flops import StepCount, StepCounter


def counted(model: nn.Module, *inputs: torch.Tensor) -> StepCount:
    with StepCounter() as counter:
        out = model(*inputs)
        (out[0] if isinstance(out, tuple) else out).sum().backward()
    assert counter.failure is None
    return counter.count


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, length: int, words: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x) + self.positions.weight[: x.size(1)]
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def gpt_forward(width: int, layers: int, length: int, words: int, batch: int) -> int:
    """2 P tokens of the products with weights, and 4 L d T a token of attention (PaLM, appendix B)."""
    weights = layers * 12 * width**2 + width * words
    return batch * length * (2 * weights + 4 * layers * width * length)


def test_a_perceptron() -> None:
    model = nn.Sequential(nn.Linear(30, 50), nn.ReLU(), nn.Linear(50, 7))
    count = counted(model, torch.randn(11, 30))
    assert count.flops_forward == 2 * 11 * (30 * 50 + 50 * 7)
    # The first layer's input needs no gradient.
    assert count.flops == 3 * count.flops_forward - 2 * 11 * 30 * 50


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions(stride: int) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, stride, 1), nn.Conv2d(8, 6, 5, 1, 2, groups=2))
    count = counted(model, torch.randn(2, 3, 16, 16))
    side = 16 // stride
    first = 2 * 2 * side**2 * 8 * 3 * 9
    second = 2 * 2 * side**2 * 6 * (8 // 2) * 25
    assert count.flops_forward == first + second
    assert count.flops == 2 * first + 3 * second


@pytest.mark.parametrize(("width", "layers", "length"), [(32, 2, 16), (64, 3, 40)])
def test_a_gpt(width: int, layers: int, length: int) -> None:
    words, batch = 100, 2
    model = GPT(width, layers, 4, length, words)
    count = counted(model, torch.randint(words, (batch, length)))
    forward = gpt_forward(width, layers, length, words, batch)
    assert count.flops_forward == forward
    # Attention that keeps no scores computes them again: five products backward for two forward.
    attention = batch * length * 4 * layers * width * length
    assert count.flops == forward + 2 * (forward - attention) + 5 * attention // 2


def test_a_recurrent_net() -> None:
    model = nn.LSTM(12, 20, num_layers=2, batch_first=True)
    count = counted(model, torch.randn(3, 9, 12))
    assert count.flops_forward == 2 * 3 * 9 * 4 * 20 * (12 + 20 + 20 + 20)


def test_products_of_batches() -> None:
    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left = nn.Parameter(torch.randn(4, 5, 6))

        def forward(self, right: torch.Tensor) -> torch.Tensor:
            return torch.bmm(self.left, right)

    count = counted(Scores(), torch.randn(4, 6, 7))
    assert count.flops_forward == 2 * 4 * 5 * 6 * 7
    assert count.flops == 2 * count.flops_forward


def bottleneck(inside: int, width: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width),
    )  # fmt: skip


class Residual(nn.Module):
    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = bottleneck(inside, width, stride)
        self.short: nn.Module = nn.Identity()
        if stride > 1 or inside != 4 * width:
            self.short = nn.Conv2d(inside, 4 * width, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.short(x))


def resnet50() -> nn.Module:
    """He et al. 2016, table 1; the stride is in the 3x3 convolutions."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inside = 64
    for index, count in enumerate((3, 4, 6, 3)):
        for block in range(count):
            width = 64 * 2**index
            layers.append(Residual(inside, width, 2 if index and block == 0 else 1))
            inside = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def on_meta(build: Callable[[], nn.Module], *inputs: torch.Tensor) -> StepCount:
    """Counted without a number being computed or kept."""
    with torch.device("meta"):
        return counted(build(), *(each.to("meta") for each in inputs))


def test_a_resnet_of_50_layers() -> None:
    count = on_meta(resnet50, torch.empty(1, 3, 224, 224))
    assert count.flops_forward == pytest.approx(8.178e9, rel=1e-3)


def test_seven_billion_parameters_without_their_weights() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    width, layers, length, words = 4096, 32, 2048, 32000
    count = on_meta(
        lambda: GPT(width, layers, 32, length, words), torch.zeros(1, length, dtype=torch.int64)
    )
    assert count.flops_forward == gpt_forward(width, layers, length, words, 1)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 2 << 30
