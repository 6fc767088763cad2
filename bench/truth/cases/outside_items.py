"""After each step AMOUNT of the outputs are added up in Python, one .item() at a time.

On a CPU .item() waits for nothing: what it costs is Python, between the steps.

truth: outside other
line: .item()
amounts: 1200 4000 15000
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
data = TensorDataset(torch.randn(2048, 128), torch.randint(0, 200, (2048,)))
model = nn.Sequential(
    nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 200)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(data, batch_size=64, shuffle=True)
total = 0.0
for epoch in range(10):
    for x, y in loader:
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scores = out.detach().flatten()
        for index in range(AMOUNT):
            total += scores[index % len(scores)].item()
