"""Data in memory, drawn in slices; a convolutional net; a little validation: a script that is fine.

truth: compute arithmetic
line: model(x)
"""

import sys

import torch
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0

torch.manual_seed(SEED)
images, labels = torch.randn(2048, 3, 32, 32), torch.randint(0, 10, (2048,))
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(1024, 10),
)
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
for epoch in range(6):
    model.train()
    for part in torch.randperm(2048).split(64):
        x, y = images[part], labels[part]
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = (model(images[:128]).argmax(dim=1) == labels[:128]).float().mean()
print(f"{right:.3f}")
