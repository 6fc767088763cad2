"""The model is saved every AMOUNT steps (0: never).

truth: outside checkpoint
line: torch.save
remedies: async_checkpoint
amounts: 16 4 1
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
data = TensorDataset(torch.randn(2048, 128), torch.randint(0, 10, (2048,)))
model = nn.Sequential(
    nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
loader = DataLoader(data, batch_size=64, shuffle=True)
step = 0
for epoch in range(8):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if AMOUNT and step % AMOUNT == 0:
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.pt"
            )
