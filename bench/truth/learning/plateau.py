"""After 150 steps the learning rate is a hundredth by mistake (FAULT 1; FAULT 0 goes on learning).

rule: plateau
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
optimizer = torch.optim.SGD(model.parameters(), 0.05)
schedule = torch.optim.lr_scheduler.MultiStepLR(
    optimizer, [150] if FAULT else [1500], gamma=1e-2 if FAULT else 0.1
)
loader = DataLoader(TensorDataset(x, y), batch_size=256, shuffle=True)
for epoch in range(60):
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
