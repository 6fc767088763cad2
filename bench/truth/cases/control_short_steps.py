"""Steps of a third of a millisecond: what a tiny model costs is to call its operators.

truth: compute dispatch
line: model(x)
"""

import sys

import torch
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0

torch.manual_seed(SEED)
batches = [(torch.randn(32, 32), torch.randn(32, 1)) for _ in range(64)]
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(500):
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
