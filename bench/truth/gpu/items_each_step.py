"""The mean output of AMOUNT of 16 layers is read with .item() each step; else it stays on the GPU.

truth: compute sync
line: .item()
remedies: no_sync_items
amounts: 2 6 16
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(1536, 1536) for _ in range(16)])
        self.last = nn.Linear(1536, 10)
        self.means = [0.0] * 16

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            x = layer(x).relu()
            mean = x.detach().mean()
            if index < AMOUNT:
                mean = mean.item()
            self.means[index] = 0.9 * self.means[index] + 0.1 * mean
        return self.last(x)


torch.manual_seed(SEED)
torch.set_float32_matmul_precision("high")
device = "cuda"
batches = [
    (torch.randn(8192, 1536, device=device), torch.randint(0, 10, (8192,), device=device))
    for _ in range(16)
]
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(2000):
    x, y = batches[step % 16]
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss:.4f} means {[round(float(m), 4) for m in model.means]}")
