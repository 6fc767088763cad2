"""Images are blurred at random over a radius of AMOUNT pixels, a pixel at a time in PIL's box blur.

truth: io augment
line: GaussianBlur
remedies: loader_workers prefetch
amounts: 1 2 4
"""

import random
import sys

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Images(Dataset):
    def __init__(self):
        noise = np.random.default_rng(SEED)
        self.images = [
            Image.fromarray(noise.integers(0, 255, (64, 64, 3), dtype=np.uint8)) for _ in range(512)
        ]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        for _ in range(AMOUNT):
            image = image.filter(ImageFilter.GaussianBlur(1 + random.random()))
        return torch.from_numpy(np.asarray(image, dtype=np.float32) / 255).flatten(), index % 10


random.seed(SEED)
torch.manual_seed(SEED)
model = nn.Sequential(
    nn.Linear(12288, 256), nn.ReLU(), nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(Images(), batch_size=32, shuffle=True)
for epoch in range(32):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
