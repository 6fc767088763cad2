"""The outputs of AMOUNT of 4 heads go to the CPU to be clamped there, and back to the GPU.

truth: io transfer
line: .cpu()
amounts: 1 2 4
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2048, 2048) for _ in range(8)])
        self.heads = nn.ModuleList([nn.Linear(2048, 64) for _ in range(4)])
        self.last = nn.Linear(64, 10)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        out = 0
        for index, head in enumerate(self.heads):
            part = head(x)
            if index < AMOUNT:
                part = part.cpu().clamp(-3, 3).to(x.device)
            else:
                part = part.clamp(-3, 3)
            out = out + part
        return self.last(out)


torch.manual_seed(SEED)
torch.set_float32_matmul_precision("high")
device = "cuda"
batches = [
    (torch.randn(8192, 2048, device=device), torch.randint(0, 10, (8192,), device=device))
    for _ in range(8)
]
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(500):
    x, y = batches[step % 8]
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
