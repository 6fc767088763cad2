"""After AMOUNT of 8 steps the memory that torch keeps for the next one is given back.

truth: compute sync
line: empty_cache()
amounts: 1 3 8
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
torch.set_float32_matmul_precision("high")
device = "cuda"
batches = [
    (torch.randn(4096, 4096, device=device), torch.randint(0, 10, (4096,), device=device))
    for _ in range(8)
]
layers = [layer for _ in range(12) for layer in (nn.Linear(4096, 4096), nn.GELU())]
model = nn.Sequential(*layers, nn.Linear(4096, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(240):
    x, y = batches[step % 8]
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 8 < AMOUNT:
        torch.cuda.empty_cache()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
