"""Images of each batch are shifted one by one, AMOUNT of 64, in the training's own loop.

truth: io augment
line: images[index]
amounts: 4 20 60
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


def shifted(x):
    images = x.numpy()
    for index in range(AMOUNT):
        images[index] = np.roll(images[index], np.random.randint(-4, 5, 2), (1, 2))
        images[index] += np.random.normal(0, 0.02, images[index].shape)
    return torch.from_numpy(images)


np.random.seed(SEED)
torch.manual_seed(SEED)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), 0.01)
data = TensorDataset(torch.rand(2048, 3, 32, 32), torch.randint(0, 10, (2048,)))
for epoch in range(50):
    for x, y in DataLoader(data, batch_size=64, shuffle=True):
        shown = shifted(x)
        loss = nn.functional.cross_entropy(model(shown), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
