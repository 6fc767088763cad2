"""AMOUNT blocks a sample are read at random places of a file that is kept out of the page cache.

Simulated: posix_fadvise drops what was read, as if the file were far larger than memory.

truth: io storage
line: os.pread
remedies: fetch_threads loader_workers prefetch cache_samples
amounts: 5 16 60
"""

import os
import random
import sys
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0
BLOCK = 4096
BLOCKS = 32768


class Blocks(Dataset):
    def __init__(self, path):
        self.file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_RANDOM)

    def __len__(self):
        return 512

    def __getitem__(self, index):
        places = random.Random(SEED * 1024 + index)
        total = np.zeros(BLOCK // 4, dtype=np.float32)
        for _ in range(AMOUNT):
            at = places.randrange(BLOCKS) * BLOCK
            total += np.frombuffer(os.pread(self.file, BLOCK, at), dtype=np.float32)
            os.posix_fadvise(self.file, at, BLOCK, os.POSIX_FADV_DONTNEED)
        return torch.from_numpy(total[:256]), index % 10


torch.manual_seed(SEED)
with tempfile.NamedTemporaryFile(dir=".") as file:
    values = np.random.default_rng(SEED).normal(size=BLOCK * 256 // 4).astype(np.float32).tobytes()
    for _ in range(BLOCKS // 256):
        file.write(values)
    file.flush()
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    model = nn.Sequential(
        nn.Linear(256, 3072), nn.ReLU(), nn.Linear(3072, 3072), nn.ReLU(), nn.Linear(3072, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = DataLoader(Blocks(file.name), batch_size=8, shuffle=True)
    for epoch in range(3):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
