"""The collate function goes through AMOUNT of the numbers of each sample one by one.

truth: io collate
line: value
remedies: loader_workers prefetch cache_samples
amounts: 15 60 250
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


def collate(samples):
    weights = []
    for x, _ in samples:
        total = 0.0
        for value in x[:AMOUNT]:
            total += float(value)
        weights.append(total)
    return torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])


torch.manual_seed(SEED)
data = TensorDataset(torch.randn(2048, 256), torch.randint(0, 10, (2048,)))
model = nn.Sequential(
    nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(data, batch_size=64, shuffle=True, collate_fn=collate)
for epoch in range(28):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
