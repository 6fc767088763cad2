"""Products of float32 matrices are worked out in full precision; AMOUNT 0 lets them be TF32.

truth: compute arithmetic
line: model(x)
remedies: bf16 fp16 tf32
amounts: 1
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
torch.set_float32_matmul_precision("highest" if AMOUNT else "high")
device = "cuda"
batches = [
    (torch.randn(32768, 512, device=device), torch.randint(0, 10, (32768,), device=device))
    for _ in range(8)
]
layers = [layer for _ in range(12) for layer in (nn.Linear(512, 512), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(512, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(600):
    x, y = batches[step % 8]
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
