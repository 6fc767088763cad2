"""AMOUNT MB of each step's outputs are kept for the whole run, without graphs; AMOUNT 0: a number.

truth: memory leak
line: outputs.append
amounts: 1 4
untimed: it costs memory
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
data = TensorDataset(torch.randn(8192, 64), torch.randn(8192, 1024))
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1024))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(data, batch_size=1024, shuffle=True)
outputs = []
for epoch in range(24):
    for x, y in loader:
        out = model(x)
        loss = nn.functional.mse_loss(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out = out.detach()
        outputs.append(out[: 256 * AMOUNT].clone() if AMOUNT else out.mean().item())
