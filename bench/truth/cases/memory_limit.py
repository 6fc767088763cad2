"""Activations come near to RLIMIT_DATA, which leaves 1.25 GiB for them; AMOUNT 0: small batches.

The script sets the limit on itself, above what it holds by then.

truth: memory capacity
line: model(x)
remedies: checkpoint_activations accumulate_gradients
amounts: 1
untimed: it costs memory
"""

import resource
import sys
from pathlib import Path

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 1024)
        self.down = nn.Linear(1024, 16)

    def forward(self, x):
        hidden = self.up(x)
        return x + self.down(hidden * torch.sigmoid(hidden))


torch.manual_seed(SEED)
model = nn.Sequential(*[Block() for _ in range(11)], nn.Linear(16, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
held = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
limit = held + (5 << 28)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
rows = 8400 if AMOUNT else 525
for step in range(8 if AMOUNT else 128):
    x, y = torch.randn(rows, 16), torch.randint(0, 10, (rows,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
