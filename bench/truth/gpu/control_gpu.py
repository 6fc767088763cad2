"""Large matrix products in bfloat16, data on the GPU, a loss read every 20 steps: nothing is wrong.

truth: compute arithmetic
line: model(x)
"""

import sys

import torch
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0

torch.manual_seed(SEED)
device = "cuda"
batches = [
    (torch.randn(8192, 4096, device=device), torch.randint(0, 10, (8192,), device=device))
    for _ in range(8)
]
layers = [layer for _ in range(8) for layer in (nn.Linear(4096, 4096), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(4096, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01, fused=True)
for step in range(500):
    x, y = batches[step % 8]
    with torch.autocast(device, torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
