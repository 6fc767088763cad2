"""AMOUNT workers make batches that cost nothing to make.

truth: io ipc
line: DataLoader(
remedies: loader_workers slice_batches cache_samples persistent_workers
amounts: 1 4 16
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
data = TensorDataset(torch.randn(2048, 256), torch.randint(0, 10, (2048,)))
model = nn.Sequential(
    nn.Linear(256, 1536), nn.ReLU(), nn.Linear(1536, 1536), nn.ReLU(), nn.Linear(1536, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(data, batch_size=256, shuffle=True, num_workers=AMOUNT)
for epoch in range(26):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
