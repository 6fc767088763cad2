"""Each sample parses AMOUNT lines of CSV anew.

truth: io parse
line: csv.reader | float(value)
remedies: cache_samples loader_workers prefetch
amounts: 1 5 16
"""

import csv
import io
import random
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Tables(Dataset):
    def __init__(self):
        chance = random.Random(SEED)
        row = ",".join(f"{chance.random():.6f}" for _ in range(64))
        self.texts = ["\n".join([row] * (AMOUNT + 1)) for _ in range(1024)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        for row in csv.reader(io.StringIO(self.texts[index])):
            values = [float(value) for value in row]
        return torch.tensor(values * 4), index % 10


torch.manual_seed(SEED)
model = nn.Sequential(
    nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(Tables(), batch_size=64, shuffle=True)
for epoch in range(40):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
