"""A table is drawn row by row and stacked again: AMOUNT 1; sliced by batch: AMOUNT 0.

truth: io collate
line: DataLoader(
remedies: slice_batches cache_samples
amounts: 1
"""

import sys

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

AMOUNT = int(sys.argv[1])

torch.manual_seed(0)
data = TensorDataset(torch.randn(40_000, 16), torch.randint(0, 10, (40_000,)))
model = nn.Sequential(
    nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
if AMOUNT:
    loader = DataLoader(data, batch_size=512, shuffle=True)
else:
    order = BatchSampler(RandomSampler(data), 512, drop_last=False)
    loader = DataLoader(data, sampler=order, batch_size=None)
for epoch in range(300):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
