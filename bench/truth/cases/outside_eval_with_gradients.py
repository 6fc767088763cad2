"""Validation keeps graphs for gradients that nobody asks for, in AMOUNT of its 16 rounds.

truth: outside validation
line: model(data)
remedies: no_grad_eval
amounts: 3 8 16
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
batches = [(torch.randn(64, 16), torch.randint(0, 10, (64,))) for _ in range(32)]
data = torch.randn(1024, 16)
layers = [layer for _ in range(10) for layer in (nn.Hardtanh(), nn.LeakyReLU())]
model = nn.Sequential(nn.Linear(16, 512), *layers, nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(40):
    model.train()
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    for index in range(16):
        with torch.set_grad_enabled(index < AMOUNT):
            out = model(data).argmax(dim=1)
