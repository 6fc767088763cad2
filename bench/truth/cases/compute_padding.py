"""Short sequences are padded to AMOUNT tokens where 16 would do (AMOUNT 0).

truth: compute arithmetic
line: model(x) | self.block(
amounts: 18 22 160
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1]) or 16
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, 256)
        self.block = nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True)
        self.last = nn.Linear(256, 10)

    def forward(self, x):
        return self.last(self.block(self.embedding(x))[:, :16].mean(dim=1))


torch.manual_seed(SEED)
batches = []
for _ in range(16):
    x = torch.zeros(16, AMOUNT, dtype=torch.long)
    x[:, :16] = torch.randint(1, 1000, (16, 16))
    batches.append((x, torch.randint(0, 10, (16,))))
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(24):
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
