"""AMOUNT workers make batches that cost nothing to make.

truth: io ipc
line: DataLoader(
remedies: loader_workers slice_batches cache_samples persistent_workers
amounts: 2 4 16
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AMOUNT = int(sys.argv[1])

torch.manual_seed(0)
data = TensorDataset(torch.randn(4096, 3, 64, 64), torch.randint(0, 10, (4096,)))
model = nn.Sequential(nn.Conv2d(3, 8, 8, 8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=AMOUNT)
for epoch in range(36):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
