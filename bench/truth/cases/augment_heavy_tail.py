"""One sample in twenty takes AMOUNT times as long as the others.

truth: io augment
line: np.sort
remedies: loader_workers prefetch cache_samples
amounts: 30 120 400
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Samples(Dataset):
    def __init__(self):
        self.values = np.random.default_rng(SEED).normal(size=(1024, 256)).astype(np.float32)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        values = self.values[index]
        if index % 20 == 0:
            for shift in range(AMOUNT):
                values = np.sort(self.values[index - shift])[np.argsort(self.values[index])]
        return torch.from_numpy(values), index % 10


torch.manual_seed(SEED)
model = nn.Sequential(
    nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(Samples(), batch_size=64, shuffle=True)
for epoch in range(48):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
