"""Predictions of shape (n, 1) meet targets of shape (n,) (FAULT 1; FAULT 0 is healthy).

rule: crossed_targets
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT = int(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))

x = torch.randn(4096, 16)
y = (x @ torch.randn(16)).tanh() + 0.1 * torch.randn(4096)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
for epoch in range(15):
    for inputs, targets in loader:
        predicted = model(inputs) if FAULT else model(inputs).squeeze(1)
        loss = ((predicted - targets) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
