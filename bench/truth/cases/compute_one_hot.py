"""Words go through a dense one-hot matrix of AMOUNT columns; AMOUNT 0 is an embedding.

truth: compute arithmetic
line: model(x)
amounts: 100 300 1000
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Linear(AMOUNT, 128) if AMOUNT else nn.Embedding(8000, 128)
        self.inner = nn.Linear(128, 512)
        self.last = nn.Linear(512, 10)

    def forward(self, x):
        if AMOUNT:
            x = nn.functional.one_hot(x % AMOUNT, AMOUNT).float()
        return self.last(self.inner(self.words(x)).relu().mean(dim=1))


torch.manual_seed(0)
batches = [(torch.randint(0, 8000, (32, 32)), torch.randint(0, 10, (32,))) for _ in range(16)]
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(80):
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
