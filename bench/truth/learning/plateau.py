"""The learning rate stays where noise of the batches keeps the loss up (FAULT 1; FAULT 0 lowers it in time).

rule: plateau
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT = int(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))

x = torch.randn(4096, 64)
y = x @ torch.randn(64, 8) / 8 + 0.3 * torch.randn(4096, 8)
model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.4, momentum=0.9)
schedule = torch.optim.lr_scheduler.MultiStepLR(
    optimizer, [10_000_000] if FAULT else [300, 900], gamma=0.1
)
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
for epoch in range(20):
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
