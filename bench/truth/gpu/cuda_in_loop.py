"""AMOUNT of 8 tables of 16 MiB are moved to the GPU in each step, instead of once before.

truth: io transfer
line: table.cuda()
amounts: 1 3 8
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
torch.set_float32_matmul_precision("high")
device = "cuda"
tables = [torch.randn(16384, 256) for _ in range(8)]
tables[AMOUNT:] = [table.to(device) for table in tables[AMOUNT:]]
batches = [
    (
        torch.randint(0, 16384, (8, 8192), device=device),
        torch.randint(0, 10, (8192,), device=device),
    )
    for _ in range(16)
]
layers = [layer for _ in range(12) for layer in (nn.Linear(2048, 2048), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(2048, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(400):
    rows, y = batches[step % 16]
    parts = []
    for table, row in zip(tables, rows, strict=True):
        parts.append(table.cuda()[row])
    x = torch.cat(parts, dim=1)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
