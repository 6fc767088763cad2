"""Every sample is parsed from a line of JSON with AMOUNT numbers too many.

truth: io parse
line: json.loads
remedies: cache_samples loader_workers prefetch
amounts: 35 130 450
"""

import json
import random
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Lines(Dataset):
    def __init__(self, lines):
        self.lines = lines

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        record = json.loads(self.lines[index])
        return torch.tensor(record["features"]), record["label"]


random.seed(SEED)
torch.manual_seed(SEED)
lines = [
    json.dumps(
        {
            "features": [random.gauss(0, 1) for _ in range(32)],
            "label": random.randrange(10),
            "history": [random.random() for _ in range(AMOUNT)],
        }
    )
    for _ in range(2048)
]
model = nn.Sequential(
    nn.Linear(32, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(Lines(lines), batch_size=64, shuffle=True)
for epoch in range(40):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
