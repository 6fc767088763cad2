"""Prices are learnt as they are, some hundred thousand each (FAULT 1; FAULT 0 is healthy).

rule: exploding_gradients
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT = int(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))

x = torch.randn(4096, 24)
price = 250_000 + 60_000 * torch.tanh(x @ torch.randn(24)) + 5_000 * torch.randn(4096)
y = price if FAULT else (price - price.mean()) / price.std()
model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
for epoch in range(20):
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs).squeeze(1), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
