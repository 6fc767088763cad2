"""Validation keeps graphs for gradients that nobody asks for (AMOUNT rounds of it).

truth: outside validation
line: model(data)
remedies: no_grad_eval validate_less
amounts: 25 85 290
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])

torch.manual_seed(0)
batches = [(torch.randn(64, 256), torch.randint(0, 10, (64,))) for _ in range(32)]
data = torch.randn(256, 256)
model = nn.Sequential(
    nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(12):
    model.train()
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    for _ in range(AMOUNT):
        out = model(data).argmax(dim=1)
