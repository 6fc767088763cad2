"""Noise is added to each sample in a Python loop, AMOUNT times.

truth: io augment
line: values[place] +=
remedies: loader_workers prefetch
amounts: 20 75 250
"""

import random
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Noisy(Dataset):
    def __init__(self, count):
        self.rows = torch.randn(count, 128).tolist()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        values = list(self.rows[index])
        for _ in range(AMOUNT):
            place = random.randrange(128)
            values[place] += random.gauss(0, 0.1)
        return torch.tensor(values), index % 10


random.seed(SEED)
torch.manual_seed(SEED)
model = nn.Sequential(
    nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(Noisy(2048), batch_size=64, shuffle=True)
for epoch in range(24):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
