"""Somebody set AMOUNT threads on a machine with two cores; AMOUNT 0 leaves torch its own.

truth: compute threads
line: set_num_threads(
remedies: threads
amounts: 8 16 32
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0
if AMOUNT:
    torch.set_num_threads(AMOUNT)

torch.manual_seed(SEED)
data = TensorDataset(torch.randn(4096, 256), torch.randint(0, 10, (4096,)))
model = nn.Sequential(
    nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(data, batch_size=256, shuffle=True)
for epoch in range(20):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
