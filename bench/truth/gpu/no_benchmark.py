"""Convolutions of ever the same shapes run without cudnn.benchmark; AMOUNT 0 turns it on.

truth: compute arithmetic
line: model(x)
remedies: cudnn_benchmark
amounts: 1
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
if not AMOUNT:
    torch.backends.cudnn.benchmark = True
device = "cuda"
batches = [
    (torch.randn(64, 3, 112, 112, device=device), torch.randint(0, 10, (64,), device=device))
    for _ in range(8)
]
model = nn.Sequential(
    nn.Conv2d(3, 48, 7, padding=3),
    nn.ReLU(),
    nn.Conv2d(48, 48, 7, padding=3),
    nn.ReLU(),
    nn.Conv2d(48, 96, 5, stride=2, padding=2),
    nn.ReLU(),
    nn.Conv2d(96, 96, 5, padding=4, dilation=2),
    nn.ReLU(),
    nn.Conv2d(96, 96, 3, padding=1, groups=4),
    nn.ReLU(),
    nn.Conv2d(96, 192, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.Conv2d(192, 192, 5, padding=2),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(192, 10),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(400):
    x, y = batches[step % 8]
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
