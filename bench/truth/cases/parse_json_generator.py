"""A generator gives batches that it parses from JSON lines; there is no DataLoader.

truth: io parse
line: json.loads
amounts: 8 30 115
"""

import json
import random
import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
chance = random.Random(SEED)
lines = [json.dumps({"x": [chance.random() for _ in range(256)], "y": i % 10}) for i in range(256)]
parsed = [json.loads(line) for line in lines]


def batches():
    for step in range(1300):
        rows = [parsed[(step + i) % 256] for i in range(64)]
        for i in range(AMOUNT):
            rows[i % 64] = json.loads(lines[(step + i) % 256])
        yield torch.tensor([row["x"] for row in rows]), torch.tensor([row["y"] for row in rows])


model = nn.Sequential(
    nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for x, y in batches():
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
