"""A batch of 512 rows is stacked from AMOUNT parts, at last row by row; AMOUNT 0: it is one slice.

truth: io collate
line: DataLoader(
remedies: slice_batches cache_samples
amounts: 128 256 512
"""

import sys

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
rows = 512 // AMOUNT if AMOUNT else 1
data = TensorDataset(
    torch.randn(40_960 // rows, rows, 16), torch.randint(0, 10, (40_960 // rows, rows))
)
model = nn.Sequential(
    nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
if AMOUNT:
    loader = DataLoader(data, batch_size=AMOUNT, shuffle=True)
else:
    order = BatchSampler(RandomSampler(data), 512, drop_last=False)
    loader = DataLoader(data, sampler=order, batch_size=None)
for epoch in range(50):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.flatten(0, 1)), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
