"""Each step prints AMOUNT lines.

truth: outside logging
line: print(
amounts: 400 1600 5600
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
batches = [(torch.randn(64, 256), torch.randint(0, 10, (64,))) for _ in range(32)]
model = nn.Sequential(
    nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(12):
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for index in range(AMOUNT):
            print(f"epoch {epoch} parameter {index} loss {loss.item():.6f}", flush=True)
