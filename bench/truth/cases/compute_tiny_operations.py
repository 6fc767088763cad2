"""An activation is written as a chain of AMOUNT operations on small tensors.

truth: compute dispatch
line: model(x) | x * 0.999
remedies: compile_model
amounts: 4 12 45
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 64)
        self.last = nn.Linear(64, 10)

    def forward(self, x):
        x = self.first(x)
        for _ in range(AMOUNT):
            x = x * 0.999
        return self.last(x)


torch.manual_seed(SEED)
data = [(torch.randn(32, 32), torch.randint(0, 10, (32,))) for _ in range(64)]
model = Chain()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(240):
    for x, y in data:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
