"""Recordings of 1 + AMOUNT channels pass from a worker to a model that listens to one of them.

truth: io ipc
line: DataLoader(
remedies: loader_workers slice_batches cache_samples
amounts: 2 8 24
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Batches(Dataset):
    def __init__(self):
        rng = np.random.default_rng(SEED)
        self.batches = rng.random((16, 64, 1 + AMOUNT, 1024), dtype=np.float32)

    def __len__(self):
        return 512

    def __getitem__(self, index):
        return self.batches[index % 16], np.arange(64) % 10


def as_it_is(batch):
    return batch


torch.manual_seed(SEED)
model = nn.Sequential(
    nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(Batches(), batch_size=None, collate_fn=as_it_is, num_workers=1)
for sounds, labels in loader:
    x, y = torch.from_numpy(sounds[:, 0]), torch.from_numpy(labels)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
