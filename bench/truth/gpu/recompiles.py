"""AMOUNT of 4 new lengths come unpadded to a model compiled for fixed shapes: each is compiled.

truth: compute dispatch
line: compiled(x)
amounts: 1 2 4
untimed: how long a compilation takes changes from run to run by more than a step
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0
LENGTHS = [256, 240, 224, 208, 192]

torch.manual_seed(SEED)
torch.set_float32_matmul_precision("high")
device = "cuda"
layers = [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.LayerNorm(1024))]
model = nn.Sequential(*layers, nn.Linear(1024, 10)).to(device)
compiled = torch.compile(model, dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(1000):
    new = step // 200
    length = LENGTHS[new]
    x = torch.randn(64, length, 1024, device=device)
    y = torch.randint(0, 10, (64,), device=device)
    if new > AMOUNT:
        x = nn.functional.pad(x, (0, 0, 0, 256 - length))
    loss = nn.functional.cross_entropy(compiled(x)[:, :length].mean(dim=1), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
