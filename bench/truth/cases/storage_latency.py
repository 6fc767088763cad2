"""Files on a slow disk: reading each takes AMOUNT milliseconds more (simulated by sleeping).

truth: io storage
line: time.sleep
remedies: fetch_threads loader_workers prefetch cache_samples
amounts: 0.01 0.1 0.4
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

AMOUNT = float(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class SlowFile:
    def __init__(self, path):
        self.path = path

    def read(self):
        time.sleep(AMOUNT / 1000)
        return self.path.read_bytes()


class Files(Dataset):
    def __init__(self, folder, count):
        self.files = [folder / f"{index}.bin" for index in range(count)]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        handle = SlowFile(self.files[index])
        data = np.frombuffer(handle.read(), dtype=np.float32)
        return torch.from_numpy(data.copy()), index % 10


torch.manual_seed(SEED)
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    for index in range(1024):
        values = np.random.default_rng([SEED, index]).normal(size=256).astype(np.float32)
        (folder / f"{index}.bin").write_bytes(values.tobytes())
    model = nn.Sequential(
        nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = DataLoader(Files(folder, 1024), batch_size=64, shuffle=True)
    for epoch in range(20):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
