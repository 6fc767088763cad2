"""The loop waits AMOUNT milliseconds after each step, "to let the machine breathe".

truth: outside other
line: time.sleep
amounts: 3 10 35
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AMOUNT = float(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
data = TensorDataset(torch.randn(2048, 128), torch.randint(0, 10, (2048,)))
model = nn.Sequential(
    nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(data, batch_size=64, shuffle=True)
for epoch in range(8):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(AMOUNT / 1000)
