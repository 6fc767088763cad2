"""AMOUNT of 32 words find their vectors by a dense one-hot matrix; the others are looked up.

truth: compute arithmetic
line: model(x) | one_hot( | chosen @
amounts: 2 6 24
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(2000, 128)
        self.inner = nn.Linear(128, 512)
        self.last = nn.Linear(512, 10)

    def forward(self, x):
        vectors = self.words(x[:, AMOUNT:])
        if AMOUNT:
            chosen = nn.functional.one_hot(x[:, :AMOUNT], 2000).float()
            vectors = torch.cat([chosen @ self.words.weight, vectors], dim=1)
        return self.last(self.inner(vectors).relu().mean(dim=1))


torch.manual_seed(SEED)
batches = [(torch.randint(0, 2000, (32, 32)), torch.randint(0, 10, (32,))) for _ in range(16)]
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(80):
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
