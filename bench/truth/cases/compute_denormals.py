"""Weights have decayed to denormal numbers (AMOUNT 1), which the processor is slow with.

truth: compute arithmetic
line: model(x)
remedies: flush_denormals
amounts: 1
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
batches = [(torch.randn(256, 512), torch.randint(0, 10, (256,))) for _ in range(16)]
model = nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 512), nn.Linear(512, 10))
if AMOUNT:
    with torch.no_grad():
        for parameter in model[2].parameters():
            parameter.mul_(1e-39)
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
for epoch in range(80):
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
