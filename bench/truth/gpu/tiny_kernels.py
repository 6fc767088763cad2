"""A gate is worked out by a chain of AMOUNT operations on a small tensor, each a kernel.

truth: compute dispatch
line: model(x)
remedies: compile_model
amounts: 50 150 400
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.ones(2048))
        self.layers = nn.ModuleList([nn.Linear(2048, 2048) for _ in range(6)])
        self.last = nn.Linear(2048, 10)

    def forward(self, x):
        gate = self.gate
        for _ in range(AMOUNT):
            gate = gate * 0.999
        x = x * gate
        for layer in self.layers:
            x = layer(x).relu()
        return self.last(x)


torch.manual_seed(SEED)
torch.set_float32_matmul_precision("high")
device = "cuda"
batches = [
    (torch.randn(2048, 2048, device=device), torch.randint(0, 10, (2048,), device=device))
    for _ in range(16)
]
model = Gated().to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(1500):
    x, y = batches[step % 16]
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")
