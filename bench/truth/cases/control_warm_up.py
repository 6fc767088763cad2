"""The first three batches are slow to come, as caches are cold; all others are there at once.

truth: compute arithmetic
line: model(x)
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


class ColdFirst(Dataset):
    drawn = 0

    def __len__(self):
        return 2048

    def __getitem__(self, index):
        ColdFirst.drawn += 1
        if ColdFirst.drawn <= 192:
            time.sleep(0.005)
        return torch.zeros(1024), index % 10

    def __getitems__(self, indices):
        return [self[index] for index in indices]


def collate(samples):
    return torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])


torch.manual_seed(SEED)
model = nn.Sequential(
    nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 2048), nn.ReLU(), nn.Linear(2048, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(ColdFirst(), batch_size=64, shuffle=True, collate_fn=collate)
for epoch in range(8):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
