"""Losses are kept with their graphs: AMOUNT 1; as numbers: AMOUNT 0.

truth: memory leak
line: losses.append
amounts: 1
untimed: it costs memory
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
data = TensorDataset(torch.randn(4096, 256), torch.randint(0, 10, (4096,)))
model = nn.Sequential(
    nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
losses = []
kept = []
for epoch in range(40):
    for x, y in DataLoader(data, batch_size=256, shuffle=True):
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append((loss, out) if AMOUNT else loss.item())
