"""Samples wait for a disk, but a worker makes them all while the step computes.

truth: compute arithmetic
line: model(x)
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


class Waits(Dataset):
    def __len__(self):
        return 2048

    def __getitem__(self, index):
        time.sleep(0.0004)
        return torch.full((1024,), index / 2048), index % 10


torch.manual_seed(SEED)
model = nn.Sequential(
    nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(Waits(), batch_size=64, num_workers=2, persistent_workers=True)
for epoch in range(8):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
