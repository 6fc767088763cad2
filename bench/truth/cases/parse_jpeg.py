"""Photographs of AMOUNT pixels a side are decoded whole for a network that sees 32.

truth: io parse
line: Image.open
remedies: cache_decoded cache_samples decode_jpeg fetch_threads loader_workers prefetch
amounts: 64 128 256
"""

import io
import sys

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

AMOUNT = max(32, int(sys.argv[1]))
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Photographs(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        pixels = np.asarray(image)[:32, :32].astype(np.float32) / 255
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy()), index % 10


torch.manual_seed(SEED)
files = []
for index in range(256):
    rng = np.random.default_rng([SEED, index])
    small = Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8))
    buffer = io.BytesIO()
    small.resize((AMOUNT, AMOUNT)).save(buffer, "jpeg", quality=90)
    files.append(buffer.getvalue())
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2, 1),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, 2, 1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(2048, 512),
    nn.ReLU(),
    nn.Linear(512, 10),
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(Photographs(files), batch_size=64, shuffle=True)
for epoch in range(110):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
