"""Single samples with noisy targets at a high rate (FAULT 1; FAULT 0: batches of 64).

rule: noisy_loss
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT = int(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))

x = torch.randn(8192, 32)
y = (x @ torch.randn(32, 1)) * 0.2 + torch.randn(8192, 1)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(TensorDataset(x, y), batch_size=1 if FAULT else 64, shuffle=True)
for epoch in range(1 if FAULT else 15):
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
