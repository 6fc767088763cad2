"""Two workers read a list of 200,000 strings (AMOUNT 1), or the same in one array (AMOUNT 0).

To read a string counts a reference, which writes to its page: each worker comes to own a copy of it.

truth: memory leak
line: self.texts[index]
amounts: 1
untimed: it costs memory
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Texts(Dataset):
    def __init__(self):
        texts = np.random.default_rng(SEED).integers(0, 256, (200_000, 1024), dtype=np.uint8)
        self.texts = [text.tobytes() for text in texts] if AMOUNT else texts

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        text = np.frombuffer(self.texts[index], dtype=np.uint8)
        return torch.from_numpy(text[:64].astype(np.float32)) / 256, index % 10


torch.manual_seed(SEED)
model = nn.Sequential(
    nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for x, y in DataLoader(Texts(), batch_size=512, shuffle=True, num_workers=2):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
