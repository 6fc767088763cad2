"""A worker on one core makes batches in about the time that the step computes on the other.

truth: compute arithmetic
line: model(x)
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


class Waves(Dataset):
    def __len__(self):
        return 2048

    def __getitem__(self, index):
        rng = np.random.default_rng([SEED, index])
        wave = rng.normal(size=3200).cumsum()
        wave = np.sin(wave) * np.exp(-np.abs(wave))
        return torch.from_numpy(wave[:1024].astype(np.float32)), index % 10


torch.manual_seed(SEED)
torch.set_num_threads(1)
model = nn.Sequential(
    nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(Waves(), batch_size=64, num_workers=1, persistent_workers=True)
for epoch in range(12):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
