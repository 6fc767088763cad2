"""Every sample is kept in AMOUNT small files, opened one by one; AMOUNT 0: all samples in one file.

The files are in the page cache: what they cost is to be opened, read and closed.

truth: io storage
line: read_bytes()
remedies: cache_samples loader_workers prefetch fetch_threads
amounts: 1 4 16
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0
SAMPLES, BYTES = 512, 1024


class Samples(Dataset):
    def __init__(self, folder):
        self.parts = [
            [f"{folder}/{index}-{part}.bin" for part in range(AMOUNT)] for index in range(SAMPLES)
        ]
        values = np.random.default_rng(SEED).normal(size=SAMPLES * BYTES // 4).astype(np.float32)
        packed = values.tobytes()
        Path(f"{folder}/packed.bin").write_bytes(packed)
        self.packed = os.open(f"{folder}/packed.bin", os.O_RDONLY)
        size = BYTES // max(1, AMOUNT)
        for index, paths in enumerate(self.parts):
            for part, path in enumerate(paths):
                start = index * BYTES + part * size
                Path(path).write_bytes(packed[start : start + size])

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        if AMOUNT:
            data = b"".join([Path(path).read_bytes() for path in self.parts[index]])
        else:
            data = os.pread(self.packed, BYTES, index * BYTES)
        return torch.from_numpy(np.frombuffer(data, dtype=np.float32).copy()), index % 10


torch.manual_seed(SEED)
with tempfile.TemporaryDirectory() as folder:
    data = Samples(folder)
    model = nn.Sequential(
        nn.Linear(256, 1536), nn.ReLU(), nn.Linear(1536, 1536), nn.ReLU(), nn.Linear(1536, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = DataLoader(data, batch_size=64, shuffle=True)
    for epoch in range(56):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
