"""Large matrix products on all cores, data in memory: nothing is wrong.

truth: compute arithmetic
line: model(x)
"""

import sys

import torch
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0

torch.manual_seed(SEED)
batches = [(torch.randn(256, 1024), torch.randint(0, 10, (256,))) for _ in range(16)]
model = nn.Sequential(
    nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(20):
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
