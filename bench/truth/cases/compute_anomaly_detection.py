"""Anomaly detection, meant for finding a NaN, was left on (AMOUNT 1).

truth: compute dispatch
line: set_detect_anomaly(True)
remedies: no_anomaly_detection
amounts: 1
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
if AMOUNT:
    torch.autograd.set_detect_anomaly(True)
batches = [(torch.randn(256, 256), torch.randint(0, 10, (256,))) for _ in range(16)]
layers = [layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU())]
model = nn.Sequential(*layers, nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(80):
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
