"""Activations come near to RLIMIT_DATA, 2 GiB, set by the script itself; AMOUNT 0: small batches.

truth: memory capacity
line: model(x)
remedies: checkpoint_activations accumulate_gradients
amounts: 1
untimed: it costs memory
"""

import resource
import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 512)
        self.down = nn.Linear(512, 16)

    def forward(self, x):
        hidden = self.up(x)
        return x + self.down(hidden * torch.sigmoid(hidden))


torch.manual_seed(0)
model = nn.Sequential(*[Block() for _ in range(16)], nn.Linear(16, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
rows = 16384 if AMOUNT else 1024
for step in range(12 if AMOUNT else 192):
    x, y = torch.randn(rows, 16), torch.randint(0, 10, (rows,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
