"""A schedule of epochs is stepped at each batch (FAULT 1; FAULT 0 is healthy).

rule: learning_rate_gone
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT = int(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))

x = torch.randn(4096, 64)
y = (x @ torch.randn(64, 10)).argmax(dim=1)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
for epoch in range(120):
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if FAULT:
            schedule.step()
    if not FAULT:
        schedule.step()
