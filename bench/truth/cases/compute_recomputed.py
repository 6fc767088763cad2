"""A transformer computes its activations again for the backward pass, though they could be kept (AMOUNT 1).

truth: compute arithmetic
line: checkpoint(block, x, use_reentrant=False)
remedies: keep_activations
amounts: 1
"""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, 128)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True) for _ in range(3)
        )
        self.last = nn.Linear(128, 10)

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            if AMOUNT:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.last(x.mean(dim=1))


torch.manual_seed(SEED)
batches = [(torch.randint(0, 1000, (16, 64)), torch.randint(0, 10, (16,))) for _ in range(16)]
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(8):
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
