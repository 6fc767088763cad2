"""Records are pickled dictionaries with AMOUNT entries of which one is needed.

truth: io parse
line: pickle.loads
remedies: cache_samples loader_workers prefetch
amounts: 100 400 1000
"""

import pickle
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Records(Dataset):
    def __init__(self):
        notes = {f"key {i}": {"name": f"value {i}", "parts": [i, i + 1.5]} for i in range(AMOUNT)}
        self.records = [
            pickle.dumps({"x": [index / 1024] * 256, "notes": notes}) for index in range(1024)
        ]

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        record = pickle.loads(self.records[index])
        return torch.tensor(record["x"]), index % 10


torch.manual_seed(SEED)
model = nn.Sequential(
    nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(Records(), batch_size=64, shuffle=True)
for epoch in range(40):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
